"""Steps told from the times at which streams speak are the steps that the engine made."""

import pytest

from surgetank.engine.backends.remote.inferred import InferredSteps
from surgetank.telemetry.stepmodel import StepFit, step_seconds
from surgetank.telemetry.steprecord import StepRecord


def play(steps: InferredSteps, t0: float, a: float, b: float, count: int) -> list[StepRecord]:
    """An engine of t0 + a*P + b*B seconds a step; every fourth step a request joins, and each
    leaves after 30 tokens. Its streams' events come 1 ms apart within a step."""
    now, running, records, number = 0.0, dict[int, int](), list[StepRecord | None](), 0
    for step in range(count):
        joined = None
        if step % 4 == 0:
            number += 1
            joined, prompt = number, 50 + 37 * (number % 5)
            steps.dispatched(number, prompt, now)
        now += t0 + (a * prompt if joined else 0.0) + b * len(running)
        for place, key in enumerate([*running, *([joined] if joined else [])]):
            records.append(steps.spoke([(key, 1)], now + 0.0001 * place))
            running[key] = running.get(key, 0) + 1
        for key in [key for key, tokens in running.items() if tokens == 30]:
            del running[key]
            records.append(steps.ended(key, 30, now + 0.001))
    return [record for record in records if record is not None]


def test_the_step_model_is_found_again() -> None:
    records = play(InferredSteps(64, 0), t0=0.02, a=0.0002, b=0.001, count=2000)
    fit = StepFit()
    for record in records:
        fit.observe(record)
    model = fit.model
    assert model is not None
    assert fit.error < 0.05
    assert model.seconds(100, 6, 0) == pytest.approx(0.02 + 0.02 + 0.006, rel=0.1)


def test_each_step_has_its_streams_and_its_time() -> None:
    steps = InferredSteps(8, 100)
    steps.dispatched(1, 10, 1.0)
    steps.dispatched(2, 20, 1.0)
    assert steps.spoke([(1, 1)], 1.5) is None
    assert steps.spoke([(2, 1)], 1.5) is None
    first = steps.spoke([(1, 1)], 1.6)
    assert first is not None
    assert step_seconds(first) == pytest.approx(0.5)
    assert (first.prefill_tokens, first.prefill_seqs, first.decode_tokens) == (30, 2, 0)
    assert steps.spoke([(2, 1)], 1.6) is None
    second = steps.spoke([(2, 1)], 1.75)
    assert second is not None
    assert step_seconds(second) == pytest.approx(0.1)
    assert (second.prefill_tokens, second.decode_tokens) == (0, 2)
    assert second.kv_resident_tokens == 10 + 1 + 20 + 1
    assert second.slots_filled + second.slots_no_work == 8


def test_prompts_wait_to_be_read_until_their_streams_speak_or_end() -> None:
    steps = InferredSteps(8, 0)
    for number, prompt in ((1, 10), (2, 20), (3, 40), (4, 80)):
        steps.dispatched(number, prompt, 1.0)
    steps.spoke([(1, 1)], 1.5)
    first = steps.spoke([(1, 1)], 1.6)
    assert first is not None
    assert first.prefill_backlog == 20 + 40 + 80
    steps.cancelled(3)
    steps.ended(4, None, 1.65)
    steps.spoke([(2, 1)], 1.7)
    second = steps.spoke([(1, 1)], 1.7)
    assert second is not None
    assert second.prefill_backlog == 0


def test_time_without_work_is_no_part_of_a_step() -> None:
    steps = InferredSteps(8, 0)
    steps.dispatched(1, 10, 0.0)
    steps.spoke([(1, 1)], 0.2)
    last = steps.ended(1, 1, 0.21)
    assert last is not None
    assert step_seconds(last) == pytest.approx(0.2)
    steps.dispatched(2, 10, 100.0)
    steps.spoke([(2, 1)], 100.3)
    later = steps.ended(2, 1, 100.3)
    assert later is not None
    assert step_seconds(later) == pytest.approx(0.3)


def test_a_plain_answer_tells_its_mean_step_while_no_stream_speaks() -> None:
    steps = InferredSteps(8, 0)
    steps.dispatched(1, 10, 0.0)
    mean = steps.ended(1, 19, 2.0)
    assert mean is not None
    assert step_seconds(mean) == pytest.approx(0.1)
    assert mean.decode_tokens == 1
    steps.dispatched(2, 10, 5.0)
    steps.cancelled(2)
    assert steps.requests == 0
    assert steps.ended(2, 5, 6.0) is None
    assert steps.spoke([(2, 1)], 6.0) is None


def test_tokens_that_come_late_and_together_are_steps_of_their_share_of_the_time() -> None:
    steps = InferredSteps(8, 0)
    steps.dispatched(1, 10, 0.0)
    steps.dispatched(2, 10, 0.0)
    steps.spoke([(1, 1)], 0.1)
    steps.spoke([(2, 1)], 0.1)
    first = steps.spoke([(1, 3)], 0.4)  # of 0.2, 0.3 and 0.4
    assert first is not None
    assert step_seconds(first) == pytest.approx(0.1)
    steps.spoke([(2, 1)], 0.4001)
    assert steps.spoke([(2, 2)], 0.4002) is None
    bunch = steps.spoke([(1, 1)], 0.5)
    assert bunch is not None
    assert step_seconds(bunch) == pytest.approx(0.1)
    assert bunch.decode_tokens == 2
    assert bunch.prefill_tokens == 0


def test_others_are_told_with_every_step_and_forgotten_when_nobody_looks() -> None:
    steps = InferredSteps(8, 0)
    news = steps.looked(None, 3, 1.0)
    assert news is not None  # nothing of ours runs that would tell it
    assert (news.others, news.decode_tokens) == (3, 0)
    assert steps.looked(None, 3, 2.0) is None
    assert steps.looked(None, None, 3.0) is None  # it does not say: that may have changed or not
    steps.dispatched(1, 10, 3.0)
    told = []
    for at in (4.0, 5.0, 16.9, 17.1):
        told.append(steps.spoke([(1, 1)], at))
    assert [each and each.others for each in told] == [None, 3, 3, 0]


def test_of_plain_answers_that_end_at_once_one_tells_the_mean_step() -> None:
    steps = InferredSteps(0, 0)
    for number in range(4):
        steps.dispatched(number, 10, 0.0)
    told = [steps.ended(number, 9, at) for number, at in enumerate((1.0, 1.005, 1.009, 1.011))]
    assert [record is not None for record in told] == [True, False, False, True]


def stream(steps: InferredSteps, fit: StepFit, key: int, now: float, ttft: float) -> float:
    """Plays a stream of twelve tokens, alone in the engine, 10 ms apart; returns when it ends."""
    steps.dispatched(key, 6, now)
    records = [steps.spoke([(key, 1)], now + ttft)]
    for token in range(1, 12):
        records.append(steps.spoke([(key, 1)], now + ttft + 0.01 * token))
    records.append(steps.ended(key, 12, now + ttft + 0.11))
    for record in records:
        if record is not None:
            fit.observe(record)
    return now + ttft + 0.11


def test_a_first_prompt_that_took_seconds_does_not_hide_the_steps_of_those_after_it() -> None:
    steps, fit = InferredSteps(1, 0), StepFit()
    now = stream(steps, fit, 0, 0.0, ttft=8.0)
    for key in range(1, 5):
        now = stream(steps, fit, key, now + 1.0, ttft=0.06)
    assert fit.model is not None
    assert fit.model.seconds(6, 0, 0) == pytest.approx(0.06, rel=0.2)
    assert fit.model.seconds(0, 1, 12) == pytest.approx(0.01, rel=0.2)


def test_a_stall_as_the_first_step_is_forgotten_within_a_few() -> None:
    steps, fit = InferredSteps(1, 0), StepFit()
    steps.dispatched(9, 6, 0.0)
    steps.spoke([(9, 1)], 0.06)
    steps.spoke([(9, 1)], 9.0)  # the first that could tell how long a step is
    steps.ended(9, 2, 9.0)
    now = 9.0
    for key in range(6):
        now = stream(steps, fit, key, now + 1.0, ttft=0.06)
    assert fit.model is not None
    assert fit.model.seconds(6, 0, 0) < 0.07
    assert fit.model.seconds(0, 1, 12) == pytest.approx(0.01, rel=0.3)
