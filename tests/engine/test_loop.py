"""Requests through the whole step loop, on a tiny model: outputs, endings, records."""

import random

import pytest
from tests.engine.tiny_engine import VOCAB, Client, alone, greedy, prompt_of, tiny_loop

from surgetank.engine.api import Commands, GenerateRequest, SamplingParams, Settings
from surgetank.engine.intake import ProtocolError
from surgetank.engine.runner import Runner
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.vocabulary import FinishReason, Move, Priority

STOP, LENGTH, REFUSED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.REFUSED


def test_each_output_is_what_the_request_gets_alone_whatever_joins_leaves_or_is_cancelled() -> None:
    rng = random.Random(3)
    client = Client(tiny_loop())
    jobs = {}
    for _ in range(60):
        for _ in range(rng.choice([0, 1, 2])):
            prompt, sampling = prompt_of(rng.randint(1, 70), rng.randint(0, 9)), greedy(12)
            if rng.random() < 0.5:
                seed = rng.getrandbits(30)
                sampling = SamplingParams(max_tokens=12, seed=seed, top_p=0.9, ignore_eos=True)
            jobs[client.submit(prompt, sampling)] = (prompt, sampling)
        if jobs and rng.random() < 0.2:
            client.cancel(cancelled := rng.choice(list(jobs)))
            if (cancelled, 0) not in client.finishes:
                del jobs[cancelled]
        client.step()
    client.run()
    assert len(jobs) > 20
    assert max(record.decode_seqs for record in client.records) == 8
    for request_id, (prompt, sampling) in jobs.items():
        assert client.outputs[request_id, 0] == alone(prompt, sampling)
    assert client.pool.used == 0


def test_outputs_survive_preemption() -> None:
    jobs = [(prompt_of(10 + 5 * i, seed=i), greedy(40)) for i in range(6)]
    client = Client(tiny_loop(kv_blocks=16, kv_spare=0))
    ids = [client.submit(prompt, sampling) for prompt, sampling in jobs]
    client.run()
    assert sum(record.preempted_recompute for record in client.records) > 0
    for request_id, (prompt, sampling) in zip(ids, jobs):
        assert client.outputs[request_id, 0] == alone(prompt, sampling)
    assert client.pool.faults([]) == []


def test_who_is_put_back_and_taken_up_again_is_told_in_turn() -> None:
    client = Client(tiny_loop(kv_blocks=16, kv_spare=0))
    ids = [client.submit(prompt_of(10 + 5 * i, seed=i), greedy(40)) for i in range(6)]
    told: dict[int, list[Move]] = {each: [] for each in ids}
    while client.loop.busy:
        output = client.step()
        for request_id, what in output.moved if output else []:
            told[request_id].append(what)
    puts_back = sum(record.preempted_recompute for record in client.records)
    assert sum(what is Move.PREEMPTED for moves in told.values() for what in moves) == puts_back > 0
    for moves in told.values():
        assert moves == [Move.PREEMPTED, Move.RESUMED] * (len(moves) // 2)


def test_choices_share_their_prompt_and_each_has_its_own_output() -> None:
    client = Client(tiny_loop())
    prompt = prompt_of(20)
    sampling = SamplingParams(max_tokens=10, seed=5, temperature=1.5, ignore_eos=True)
    request_id = client.submit(prompt, sampling, n=3)
    client.step()
    assert client.pool.used == 3  # 20 tokens of 8, once
    client.step()
    assert client.pool.used == 5  # two copies of the last block
    client.run()
    outputs = [client.outputs[request_id, index] for index in range(3)]
    assert len({tuple(output) for output in outputs}) == 3
    assert outputs[0] == alone(prompt, sampling)
    assert [client.finishes[request_id, index] for index in range(3)] == [LENGTH] * 3
    assert client.records[0].prefill_tokens == 20


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("index", [0, 1])
def test_one_choice_may_leave_at_any_time_and_the_others_go_on(steps: int, index: int) -> None:
    prompt, sampling = prompt_of(40), SamplingParams(max_tokens=8, seed=5, ignore_eos=True)
    whole, client = Client(tiny_loop()), Client(tiny_loop())
    whole.submit(prompt, sampling, n=3)
    whole.run()
    request_id = client.submit(prompt, sampling, n=3)
    for _ in range(steps):  # the prompt takes two steps to read
        client.step()
    client.cancel(request_id, index)
    client.run()
    left = {0, 1, 2} - {index}
    assert {each for _, each in client.finishes} == left
    for each in left:
        assert client.outputs[request_id, each] == whole.outputs[1, each]
    assert client.pool.faults([]) == []


def test_an_abort_at_every_stage_of_life_leaves_nothing_behind() -> None:
    rng = random.Random(1)
    client = Client(tiny_loop(kv_blocks=20, kv_spare=0))
    everyone = []
    for _ in range(400):
        prompt = prompt_of(rng.randint(1, 60), rng.randint(0, 4))
        n = rng.choice([1, 1, 1, 3])
        everyone.append(client.submit(prompt, greedy(rng.randint(1, 30)), n=n))
        for _ in range(rng.choice([0, 0, 1, 2])):
            client.step()
        client.cancel(rng.choice(everyone[-8:]), rng.choice([-1, -1, 0, 2]))
        assert client.loop.faults() == []
    for request_id in everyone:
        client.cancel(request_id)
    assert client.pool.used == 0
    assert client.pool.faults([]) == []
    assert len(client.loop.roster) == 0
    client.run()
    assert not client.loop.busy


def test_a_cancelled_request_is_silent_and_its_blocks_are_free_before_the_next_step() -> None:
    client = Client(tiny_loop())
    gone, stays = client.submit(prompt_of(30), greedy(50)), client.submit([5], greedy(6))
    for _ in range(3):
        client.step()
    heard = len(client.outputs[gone, 0])
    client.cancel(gone)
    assert client.pool.used == 1
    client.run()
    assert (len(client.outputs[gone, 0]), (gone, 0) in client.finishes) == (heard, False)
    assert client.outputs[stays, 0] == alone([5], greedy(6))


def test_when_the_last_is_cancelled_one_more_record_shows_the_empty_engine() -> None:
    client = Client(tiny_loop())
    gone = client.submit(prompt_of(30), greedy(50))
    for _ in range(3):
        client.step()
    assert (sum(client.records[-1].running), client.records[-1].kv_used) != (0, 0)
    client.cancel(gone)
    assert client.loop.busy
    client.step()
    last = client.records[-1]
    assert (sum(last.running), last.kv_used, last.slots_no_work, last.token_budget) == (0, 0, 0, 0)
    client.run()
    assert not client.loop.busy
    before = len(client.records)
    client.step()
    assert len(client.records) == before


def test_a_passed_deadline_ends_the_running_and_the_waiting_before_the_next_step() -> None:
    clock = ManualClock()
    client = Client(tiny_loop(clock, max_num_seqs=1))
    runs = client.submit(prompt_of(5), greedy(100), time_left=5.0)
    waits = client.submit(prompt_of(5), greedy(100), time_left=4.0)
    stays = client.submit(prompt_of(5), greedy(2))
    client.step()
    clock.advance(4.0)
    client.step()
    assert client.finishes == {(waits, 0): FinishReason.DEADLINE}
    clock.advance(1.0)
    output = client.step()
    assert output is not None
    assert [started.request_id for started in output.started] == [stays]
    assert client.finishes[runs, 0] is FinishReason.DEADLINE
    client.run()
    assert client.finishes[stays, 0] is LENGTH


def test_stop_tokens_end_an_output_and_are_its_last_token() -> None:
    prompt = prompt_of(9)
    tokens = alone(prompt, greedy(20))
    stop = tokens[4]
    first = tokens.index(stop)
    client = Client(tiny_loop())
    request_id = client.submit(prompt, greedy(20, stop_token_ids=(stop,)))
    client.run()
    assert client.outputs[request_id, 0] == tokens[: first + 1]
    assert client.finishes[request_id, 0] is STOP
    late = client.submit(prompt, greedy(20, stop_token_ids=(stop,), min_tokens=first + 3))
    client.run()
    assert len(client.outputs[late, 0]) >= first + 3
    assert stop not in client.outputs[late, 0][: first + 2]


@pytest.mark.parametrize(
    ("prompt", "changes", "detail"),
    [
        (prompt_of(500), {"max_tokens": 13}, "exceed the context of 512 tokens"),
        (prompt_of(100), {"max_tokens": 62}, "exceed the KV pool of 160 tokens"),
        ([3, VOCAB], {"max_tokens": 1}, f"outside the vocabulary of {VOCAB}"),
        ([-1], {"max_tokens": 1}, f"outside the vocabulary of {VOCAB}"),
        ([], {"max_tokens": 1}, "0 prompt tokens and max_tokens 1; allowed: at least 1"),
        ([3], {"max_tokens": 0}, "max_tokens 0; allowed: at least 1"),
    ],
)
def test_what_can_never_run_is_refused_at_once(
    prompt: list[int], changes: dict[str, int], detail: str
) -> None:
    client = Client(tiny_loop(kv_blocks=20))
    request_id = client.submit(prompt, SamplingParams(**changes))  # type: ignore[arg-type]
    output = client.step()
    assert output is not None
    assert output.record is None
    assert client.finishes == {(request_id, 0): REFUSED}
    assert detail in client.details[request_id, 0]


def test_the_largest_request_that_fits_is_served() -> None:
    client = Client(tiny_loop(kv_blocks=20, kv_spare=0.5))
    request_id = client.submit(prompt_of(100), greedy(61))
    client.run()
    assert len(client.outputs[request_id, 0]) == 61
    assert max(record.kv_used for record in client.records) == 20


def test_more_choices_than_sequences_are_refused_each_also_when_the_limit_falls() -> None:
    client = Client(tiny_loop())
    wide = client.submit([5], greedy(3), n=9)
    client.step()
    assert [client.finishes[wide, index] for index in range(9)] == [REFUSED] * 9
    client.submit([5], greedy(50))
    client.step()
    waiting = client.submit([5], greedy(3), n=8)
    client.loop.take(Commands(settings=Settings(max_num_seqs=4)))
    client.step()
    assert client.details[waiting, 7] == (
        "n is 8; allowed: 1 to 4, the sequences that may run at once"
    )


def test_budgets_change_between_steps() -> None:
    client = Client(tiny_loop())
    for _ in range(9):
        client.submit(prompt_of(3), greedy(30))
    client.loop.take(Commands(settings=Settings(max_num_seqs=2, max_batch_tokens=5)))
    client.step()
    assert (client.records[0].prefill_tokens, client.records[0].token_budget) == (5, 5)
    assert (client.records[0].slots_filled, client.records[0].slots_blocked_limit) == (2, 6)
    client.loop.take(Commands(settings=Settings(max_num_seqs=100, max_batch_tokens=32)))
    client.step()
    assert client.records[-1].running == (0, 8, 0, 0)  # never more than the process was built for


def test_an_id_in_use_is_an_error_of_the_sidecar() -> None:
    client = Client(tiny_loop())
    client.submit([5], greedy(5))
    again = GenerateRequest(request_id=1, prompt=[5], sampling=greedy(5))
    with pytest.raises(ProtocolError, match="request id 1 is still in use"):
        client.loop.take(Commands(submit=[again]))


def test_prefix_hits_are_told_once_and_recomputed_tokens_are_none() -> None:
    client = Client(tiny_loop())
    first = client.submit(prompt_of(30), greedy(2))
    client.run()
    second = client.submit([*prompt_of(30), 9, 9], greedy(2))
    client.run()
    assert client.cached == {first: 0, second: 24}
    hits = [record.prefix_hit_tokens for record in client.records]
    misses = [record.prefix_miss_tokens for record in client.records]
    assert (sum(hits), sum(misses)) == (24, 30 + 8)
    crowded = Client(tiny_loop(kv_blocks=16, kv_spare=0))
    for i in range(6):
        crowded.submit(prompt_of(20, seed=i), greedy(30))
    crowded.run()
    assert sum(record.preempted_tokens for record in crowded.records) > 0
    assert sum(record.prefix_hit_tokens for record in crowded.records) == 0
    assert sum(record.prefix_miss_tokens for record in crowded.records) == 6 * 20


def test_a_record_accounts_for_every_slot_token_and_block() -> None:
    client = Client(tiny_loop())
    for i in range(10):
        priority = Priority.BATCH if i % 2 else Priority.DEFAULT
        client.submit(prompt_of(6, seed=i), greedy(4), priority=priority)
    client.run()
    first, second = client.records[:2]
    assert (first.prefill_seqs, first.prefill_tokens, first.kv_resident_tokens) == (6, 32, 32)
    assert (first.slots_filled, first.slots_blocked_token_budget) == (6, 2)
    assert (first.waiting, first.running) == ((0, 2, 2, 0), (0, 3, 3, 0))
    assert first.prefill_backlog == 4 + 24
    assert first.contended
    assert (second.decode_seqs, second.prefill_seqs) == (5, 3)
    assert (second.slots_filled, second.slots_no_work) == (8, 0)
    for record in client.records:
        slots = (
            record.slots_filled
            + record.slots_no_work
            + record.slots_blocked_kv
            + record.slots_blocked_token_budget
            + record.slots_blocked_limit
            + record.slots_blocked_other
        )
        assert slots == 8
        assert record.kv_used + record.kv_cached + record.kv_free == 64
    assert sum(record.decode_tokens + record.prefill_seqs for record in client.records) >= 40
    assert [record.step for record in client.records] == list(range(1, len(client.records) + 1))


def test_a_failing_step_ends_its_requests_and_not_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(tiny_loop(max_num_seqs=2))
    hit = [client.submit(prompt_of(10), greedy(5)) for _ in range(2)]
    later = client.submit(prompt_of(12), greedy(5))

    def fail(*_: object) -> None:
        raise RuntimeError("the kernel is broken")

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "forward", fail)
        client.step()
    client.step()
    for request_id in hit:
        assert client.finishes[request_id, 0] is FinishReason.ERROR
        assert client.details[request_id, 0] == "RuntimeError: the kernel is broken"
    client.run()
    assert client.outputs[later, 0] == alone(prompt_of(12), greedy(5))
    assert client.pool.faults([]) == []
