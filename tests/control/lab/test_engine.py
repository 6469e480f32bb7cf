"""The simulated engine in time: when tokens come, and what each fault does to them."""

import random
from functools import partial

import pytest
from tests.control.lab.bench import SMALL, Bench, Heard

from surgetank.control.lab.steptime import EngineSpec
from surgetank.engine.api import BackendDown, Settings
from surgetank.telemetry.vocabulary import FinishReason


def test_steps_take_what_the_model_says() -> None:
    bench = Bench()
    heard = bench.submit(prompt=12, output=3)
    bench.timeline.run(1.0)
    # 8 prompt tokens: 18 ms; 4: 14 ms and the first token; then two steps of one sequence, 11 ms.
    assert heard.at == pytest.approx([0.032, 0.054])
    assert heard.counts == [1, 2]
    assert heard.started == [pytest.approx(0.018)]
    assert heard.finish is FinishReason.LENGTH
    assert [record.prefill_tokens for record in bench.records] == [8, 4, 0, 0]
    assert [record.kv_resident_tokens for record in bench.records] == [8, 12, 13, 14]
    assert [record.at for record in bench.records] == pytest.approx([0.018, 0.032, 0.043, 0.054])


def test_an_answer_that_ends_by_itself_stops() -> None:
    bench = Bench()
    heard = bench.submit(prompt=2, output=50, answer=2)
    bench.timeline.run(1.0)
    assert heard.finish is FinishReason.STOP
    assert sum(heard.counts) == 2


def test_a_new_request_enters_between_two_steps_of_a_long_run() -> None:
    bench = Bench()
    bench.submit(prompt=4, output=100)  # first token at 14 ms, then every 11 ms
    late: list[Heard] = []
    bench.timeline.call_at(0.100, lambda: late.append(bench.submit(prompt=2, output=1)))
    bench.timeline.run(2.0)
    # The step that runs at 100 ms ends at 14 + 8*11 = 102; the next reads 2 tokens beside one.
    assert late[0].at == pytest.approx([0.115])


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_jumping_over_equal_steps_changes_nothing(noise: float) -> None:
    def played(*, jump: bool) -> tuple[list[object], list[object]]:
        spec = EngineSpec(
            model=SMALL.model, max_num_seqs=6, max_batch_tokens=24, block_size=4, kv_blocks=40,
            noise=noise,
        )  # fmt: skip
        bench, rng = Bench(spec, jump=jump), random.Random(3)
        heards: list[Heard] = []
        at = 0.0

        def submit(size: tuple[int, int], left: float | None) -> None:
            heards.append(bench.submit(*size, time_left=left))

        for _ in range(80):
            at += rng.expovariate(8.0)
            size = rng.randint(1, 30), rng.randint(1, 60)
            left = rng.choice([None, 0.5])
            bench.timeline.call_at(at, partial(submit, size, left))
        bench.timeline.call_at(3.0, lambda: bench.engine.stop(0.4))
        bench.timeline.run(60.0)
        assert bench.engine.totals.preemptions > 0
        return list(bench.records), [(h.at, h.counts, h.finish) for h in heards]

    assert played(jump=True) == played(jump=False)


def test_a_cancelled_request_frees_its_blocks_and_hears_nothing_more() -> None:
    bench = Bench()
    heard = bench.submit(prompt=4, output=100)
    bench.timeline.call_at(0.050, lambda: bench.port.cancel(1))
    bench.timeline.run(2.0)
    assert heard.finish is None
    assert bench.records[-1].kv_used > 0
    other = bench.submit(prompt=4, output=1)
    bench.timeline.run(3.0)
    assert other.finish is FinishReason.LENGTH
    assert bench.records[-1].kv_used == 0


def test_what_it_cannot_stop_it_answers_to_the_end_but_nothing_is_begun_in_vain() -> None:
    bench = Bench(SMALL.model_copy(update={"max_num_seqs": 1, "stoppable": False}))
    begun, late, waiting = (bench.submit(4, 20, time_left=left) for left in (None, 0.1, None))
    bench.timeline.call_at(0.050, lambda: bench.port.cancel(1))
    bench.timeline.call_at(0.050, lambda: bench.port.cancel(3))
    bench.timeline.run(2.0)
    assert [heard.finish for heard in (begun, late, waiting)] == [None, FinishReason.DEADLINE, None]
    assert bench.engine.totals.decode_tokens == 19, "the first alone, and all of it"


def test_deadlines_end_requests_between_two_steps() -> None:
    bench = Bench()
    heard = bench.submit(prompt=4, output=100, time_left=0.200)
    bench.timeline.run(2.0)
    assert heard.finish is FinishReason.DEADLINE
    assert bench.records[-1].at == pytest.approx(0.201)  # 14 + 17*11 ms: the first end after 200


def test_what_can_never_fit_is_refused() -> None:
    bench = Bench()
    heard = bench.submit(prompt=200, output=100)
    bench.timeline.run(1.0)
    assert heard.finish is FinishReason.REFUSED
    assert heard.detail == "300 tokens exceed the 256 that fit"


def test_a_stall_makes_the_step_in_progress_longer() -> None:
    bench = Bench()
    heard = bench.submit(prompt=4, output=3)  # would end at 14, 25, 36 ms
    bench.timeline.call_at(0.020, lambda: bench.engine.stop(1.0))
    bench.timeline.run(0.520)
    assert bench.port.stalled_for(0.520) == pytest.approx(0.506)  # since 14 ms
    bench.timeline.run(3.0)
    assert heard.at[-1] == pytest.approx(1.036)
    assert bench.records[1].forward == pytest.approx(1.011)


def test_nothing_begins_during_a_stall() -> None:
    bench = Bench()
    bench.engine.stop(1.0)
    heard = bench.submit(prompt=4, output=1)
    bench.timeline.run(3.0)
    assert heard.at == pytest.approx([1.014])


def test_slow_steps_take_their_multiple_while_it_lasts() -> None:
    bench = Bench()
    bench.engine.slow(3.0, seconds=0.050)
    heard = bench.submit(prompt=4, output=3)  # 14*3 = 42 ms; 11*3 = 33 begins in time; then 11
    bench.timeline.run(1.0)
    assert heard.at == pytest.approx([0.042, 0.086])


def test_a_crash_loses_everything_and_the_engine_comes_back() -> None:
    bench = Bench()
    heard = bench.submit(prompt=4, output=100)
    bench.timeline.call_at(0.050, lambda: bench.engine.crash(2.0))
    bench.timeline.run(1.0)
    assert heard.detail == "lost: the simulated engine crashed"
    assert bench.port.card is None
    assert bench.port.stalled_for(1.0) is None
    with pytest.raises(BackendDown, match="down"):
        bench.submit(prompt=1, output=1)
    bench.timeline.run(3.0)
    assert bench.news == [(0.0, "up"), (0.050, "down"), (2.050, "up")]
    assert bench.port.card is not None


def test_lost_kv_blocks_preempt_and_come_back() -> None:
    bench = Bench()
    heard = [bench.submit(prompt=8, output=100) for _ in range(2)]  # 27 blocks each in the end
    bench.timeline.call_at(0.500, lambda: bench.engine.lose_kv(0.75, seconds=1.0))  # 16 are left
    bench.timeline.run(10.0)
    assert bench.engine.totals.preemptions > 0
    assert [h.finish for h in heard] == [FinishReason.LENGTH] * 2
    assert bench.records[-1].kv_free + bench.records[-1].kv_cached == 64


def test_frozen_metrics_hide_steps_but_not_tokens() -> None:
    bench = Bench()
    bench.engine.freeze_metrics(10.0)
    heard = bench.submit(prompt=4, output=3)
    bench.timeline.run(1.0)
    assert heard.finish is FinishReason.LENGTH
    assert bench.port.last_step is None
    assert bench.records == []
    assert bench.outputs == 3


def test_settings_hold_after_a_restart() -> None:
    bench = Bench()
    bench.port.apply(Settings(max_batch_tokens=5))
    bench.submit(prompt=12, output=1)
    bench.timeline.run(0.5)
    assert [record.prefill_tokens for record in bench.records] == [5, 5, 2]
    bench.engine.crash(0.1)
    bench.timeline.run(1.0)
    bench.submit(prompt=6, output=1)
    bench.timeline.run(2.0)
    assert [record.prefill_tokens for record in bench.records[3:]] == [5, 1]


def test_slots_add_up_to_the_batch() -> None:
    bench = Bench()
    for _ in range(6):
        bench.submit(prompt=3, output=5)
    bench.timeline.run(2.0)
    for record in bench.records:
        slots = (
            record.slots_filled
            + record.slots_no_work
            + record.slots_blocked_kv
            + record.slots_blocked_token_budget
            + record.slots_blocked_limit
        )
        assert slots == 4
    assert any(record.slots_blocked_token_budget for record in bench.records)


def test_prompts_are_cut_to_the_time_of_a_step_once_the_engine_knows_its_speed() -> None:
    timed = {"max_batch_tokens": 64, "tpot_target": 0.020, "min_prefill_tokens": 1}
    bench = Bench(SMALL.model_copy(update=timed))
    bench.submit(prompt=1, output=100)
    bench.timeline.call_at(0.100, lambda: bench.submit(prompt=40, output=1))  # before it does
    bench.timeline.call_at(0.600, lambda: bench.submit(prompt=40, output=1))
    bench.timeline.run(5.0)
    beside = [r for r in bench.records if r.prefill_tokens and r.decode_tokens]
    # 10 ms + one sequence leave 9 ms of 20: nine tokens.
    assert [r.prefill_tokens for r in beside] == [40, 9, 9, 9, 9, 4]
    assert [r.forward for r in beside[1:]] == pytest.approx([0.020] * 4 + [0.015])
    assert beside[1].prefill_budget == 9


def test_tpot_target_is_a_setting() -> None:
    bench = Bench(SMALL.model_copy(update={"max_batch_tokens": 64, "min_prefill_tokens": 1}))
    bench.port.apply(Settings(tpot_target=0.020))
    bench.port.apply(Settings(max_num_seqs=4))  # takes nothing of that back
    bench.submit(prompt=1, output=100)
    bench.timeline.call_at(0.600, lambda: bench.submit(prompt=10, output=1))
    bench.timeline.run(5.0)
    beside = [r for r in bench.records if r.prefill_tokens and r.decode_tokens]
    assert [r.prefill_tokens for r in beside] == [9, 1]


def test_swapping_takes_its_time_and_keeps_what_was_computed() -> None:
    swaps = {"kv_blocks": 10, "swap_blocks": 10, "preemption": "swap", "swap_seconds": 0.002}
    bench = Bench(SMALL.model_copy(update=swaps))
    heard = [bench.submit(prompt=4, output=30) for _ in range(2)]
    bench.timeline.run(5.0)
    assert [h.finish for h in heard] == [FinishReason.LENGTH] * 2
    out = [r for r in bench.records if r.swapped_out_bytes]
    back = [r for r in bench.records if r.swapped_in_bytes]
    assert len(out) == len(back) == 1
    assert out[0].forward == pytest.approx(0.011 + 0.001 * out[0].swapped_out_bytes)
    assert out[0].swapped_tokens > 0
    assert bench.engine.totals.recomputed_tokens == 0
    assert bench.engine.totals.most_preempted == 1
