"""Out of memory as an event: each kind injected; what can be freed is, the rest goes on."""

from typing import Any

import pytest
import torch
from tests.engine.tiny_engine import Client, alone, greedy, prompt_of, tiny_loop

from surgetank.engine.api import OUT_OF_MEMORY, Commands, SamplingParams, Settings
from surgetank.engine.intake import Intake
from surgetank.engine.kv.pool import BlockPool, NoBlockError
from surgetank.engine.relief import oom_source
from surgetank.engine.runner import Chunk, Runner
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.steprecord import OOMS
from surgetank.telemetry.vocabulary import FinishReason, OomAction, OomSource

ACTIVATION, HOST, KV = OomSource.ACTIVATION, OomSource.HOST, OomSource.KV
EVICTED, SHRANK, REFUSED = OomAction.EVICTED_CACHE, OomAction.SHRANK_STEP, OomAction.REFUSED
GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
CPU = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


def events(client: Client) -> dict[tuple[OomSource, OomAction], int]:
    sums = [sum(record.ooms[place] for record in client.records) for place in range(len(OOMS))]
    return {event: count for event, count in zip(OOMS, sums) if count}


def fail_above(tokens: int, error: Exception, patch: pytest.MonkeyPatch) -> list[int]:
    """The forward pass has memory for so many tokens. Returns the sizes of the steps it made."""
    forward, made = Runner.forward, list[int]()

    def bounded(self: Runner, decode: list[Sequence], prefill: list[Chunk]) -> torch.Tensor:
        size = len(decode) + sum(count for _, count in prefill)
        if size > tokens:
            raise error
        made.append(size)
        return forward(self, decode, prefill)

    patch.setattr(Runner, "forward", bounded)
    return made


@pytest.mark.parametrize(
    ("error", "source"),
    [(GPU, ACTIVATION), (CPU, ACTIVATION), (MemoryError(), HOST), (RuntimeError("shape"), None)],
)
def test_errors_are_told_apart(error: Exception, source: OomSource | None) -> None:
    assert oom_source(error) is source


@pytest.mark.parametrize(("error", "source"), [(GPU, ACTIVATION), (CPU, ACTIVATION)])
def test_a_step_too_large_is_halved_until_it_fits_and_stays_small_for_a_while(
    error: Exception, source: OomSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [(prompt_of(30, seed), greedy(8)) for seed in range(4)]
    expected = [alone(*job) for job in jobs]
    made = fail_above(10, error, monkeypatch)
    client = Client(tiny_loop())
    ids = [client.submit(*job) for job in jobs]
    client.run()
    assert [client.outputs[request_id, 0] for request_id in ids] == expected
    assert events(client) == {(source, SHRANK): 2}  # 32, 16, 8
    assert made[:2] == [8, 8]
    assert client.records[0].prefill_tokens == 8
    assert client.records[1].token_budget == 8
    assert client.pool.faults([]) == []


def test_what_not_even_one_token_has_memory_for_is_refused_and_the_engine_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(tiny_loop())
    with monkeypatch.context() as patch:
        fail_above(0, GPU, patch)
        request_id = client.submit(prompt_of(4), greedy(5), n=2)
        client.run()
    for index in (0, 1):
        assert client.finishes[request_id, index] is FinishReason.REFUSED
        assert client.details[request_id, index].startswith(f"{OUT_OF_MEMORY}: OutOfMemoryError")
    assert events(client) == {(ACTIVATION, SHRANK): 2, (ACTIVATION, REFUSED): 1}
    assert client.pool.used == 0
    later = client.submit(prompt_of(9), greedy(5))
    client.run()
    assert client.outputs[later, 0] == alone(prompt_of(9), greedy(5))


def test_the_host_gives_up_its_swap_pool_first_and_the_swapped_out_are_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [(prompt_of(20, seed), greedy(40)) for seed in range(4)]
    client = Client(tiny_loop(kv_blocks=16, kv_spare=0, swap_bytes=2**20, preemption="swap"))
    ids = [client.submit(*job) for job in jobs]
    while not client.loop.roster.view.kv.host.used:
        client.step()
    forward, failures = Runner.forward, iter([MemoryError()])

    def once(self: Runner, decode: list[Sequence], prefill: list[Chunk]) -> torch.Tensor:
        for error in failures:
            raise error
        return forward(self, decode, prefill)

    monkeypatch.setattr(Runner, "forward", once)
    client.run()
    for request_id, job in zip(ids, jobs):
        assert client.outputs[request_id, 0] == alone(*job)
    assert events(client) == {(HOST, EVICTED): 1}
    assert client.loop.roster.view.kv.host.size == 0
    assert sum(record.recomputed_tokens for record in client.records) > 0


def test_a_request_that_the_host_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(tiny_loop())

    def full(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Intake, "submit", full)
        request_id = client.submit(prompt_of(4), greedy(5), n=2)
    later = client.submit(prompt_of(4), greedy(5))
    client.run()
    assert client.finishes[request_id, 1] is FinishReason.REFUSED
    assert client.details[request_id, 1].startswith(OUT_OF_MEMORY)
    assert len(client.outputs[later, 0]) == 5
    assert events(client) == {(HOST, REFUSED): 1}


def starve(patch: pytest.MonkeyPatch, times: int) -> None:
    """So many times, the pool does not give the block that its books promise."""
    take, left = BlockPool.take, iter(range(times))

    def failing(self: BlockPool) -> int:
        for _ in left:
            raise NoBlockError("no block left")
        return take(self)

    patch.setattr(BlockPool, "take", failing)


def test_a_missing_block_pauses_and_when_nobody_gets_one_the_prefix_cache_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(tiny_loop())
    client.submit(prompt_of(40, 9), greedy(2))
    client.run()
    request_id = client.submit(prompt_of(8), greedy(20))
    client.step()
    assert client.pool.cached > 0
    starve(monkeypatch, times=1)
    client.step()
    assert client.pool.cached == 0
    client.run()
    assert client.outputs[request_id, 0] == alone(prompt_of(8), greedy(20))
    assert events(client) == {(KV, EVICTED): 1}
    assert sum(record.allocation_failures for record in client.records) == 1


def test_without_any_block_the_least_loss_is_refused_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(tiny_loop())
    long, short = client.submit(prompt_of(16, 1), greedy(9)), client.submit(prompt_of(8), greedy(9))
    client.step()
    starve(monkeypatch, times=2)  # one step's worth: both are at the end of a block
    client.step()
    assert client.finishes == {(short, 0): FinishReason.REFUSED}
    assert client.details[short, 0] == f"{OUT_OF_MEMORY}: the KV pool of 512 tokens is full"
    client.run()
    assert client.outputs[long, 0] == alone(prompt_of(16, 1), greedy(9))
    assert events(client) == {(KV, REFUSED): 1}


def test_who_outgrows_a_pool_that_shrank_under_it_is_refused() -> None:
    client = Client(tiny_loop(kv_blocks=20, kv_spare=0))
    request_id = client.submit(prompt_of(40), greedy(100))
    client.step()
    client.step()
    client.loop.take(Commands(settings=Settings(kv_watermark=0.5)))
    client.run()
    assert client.finishes[request_id, 0] is FinishReason.REFUSED
    assert client.details[request_id, 0].startswith(OUT_OF_MEMORY)
    assert len(client.outputs[request_id, 0]) == 80 - 40 + 1  # ten blocks of eight
    assert client.pool.used == 0


@pytest.mark.parametrize("error", [GPU, MemoryError(), RuntimeError("a copy failed")])
def test_blocks_that_cannot_be_moved_end_only_those_that_needed_them(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = SamplingParams(max_tokens=9, seed=5, ignore_eos=True)
    client = Client(tiny_loop())
    other = client.submit(prompt_of(12, 3), greedy(9))
    forked = client.submit(prompt_of(12), sampling, n=3)
    client.step()

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "move", fail)
        client.step()  # two of the three choices copy their last block
    client.run()
    finishes = [client.finishes[forked, index] for index in range(3)]
    told = FinishReason.REFUSED if oom_source(error) else FinishReason.ERROR
    assert sorted(finishes) == sorted([told, told, FinishReason.LENGTH])
    assert client.outputs[other, 0] == alone(prompt_of(12, 3), greedy(9))
    assert client.pool.faults([]) == []


def test_what_could_not_be_swapped_out_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [(prompt_of(20, seed), greedy(40)) for seed in range(4)]
    client = Client(tiny_loop(kv_blocks=16, kv_spare=0, swap_bytes=2**20, preemption="swap"))
    ids = [client.submit(*job) for job in jobs]
    move, failures = Runner.move, iter([GPU])

    def once(self: Runner, *moves: list[tuple[int, int]]) -> None:
        for error in failures:
            raise error
        move(self, *moves)

    monkeypatch.setattr(Runner, "move", once)
    client.run()
    for request_id, job in zip(ids, jobs):
        assert client.outputs[request_id, 0] == alone(*job)
    assert events(client) == {(ACTIVATION, EVICTED): 1}
    assert sum(record.recomputed_tokens for record in client.records) > 0


def test_faults_that_an_integrity_check_finds_stand_in_the_next_record() -> None:
    client = Client(tiny_loop())
    client.submit(prompt_of(9), greedy(2))
    client.run()
    client.pool._references[0] += 1
    assert len(client.loop.faults()) == 3
    client.pool._references[0] -= 1
    client.submit(prompt_of(9), greedy(2))
    client.run()
    assert sum(record.kv_faults for record in client.records) == 3
