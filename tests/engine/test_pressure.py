"""Preemption, swapping, sharing and aborts in any mixture: no output changes, nothing leaks."""

import random
from dataclasses import dataclass
from functools import cache

import pytest
from tests.engine.tiny_engine import Client, alone, greedy, prompt_of, tiny_loop

from surgetank.engine.api import Commands, SamplingParams, Settings
from surgetank.telemetry.steprecord import PREEMPTIONS
from surgetank.telemetry.vocabulary import (
    FinishReason,
    PreemptionKind,
    PreemptionReason,
    Priority,
)

SWAP_BLOCKS = 10
BLOCK_BYTES = 8 * 2 * 2 * 2 * 8 * 4  # tokens, K and V, layers, KV heads, head size, float32


@dataclass(frozen=True)
class Job:
    """A request, all of whose choices' outputs are known beforehand."""

    length: int
    family: int  # its prompt begins as the others of its family
    tail: int
    n: int
    sampling: SamplingParams

    @property
    def prompt(self) -> list[int]:
        return prompt_of(40, self.family)[: self.length] + prompt_of(3, 100 + self.tail)


@cache
def undisturbed(job: Job) -> list[list[int]]:
    """What each choice gets in an engine with room for everything."""
    client = Client(tiny_loop())
    request_id = client.submit(job.prompt, job.sampling, n=job.n)
    client.run()
    return [client.outputs[request_id, index] for index in range(job.n)]


def any_job(rng: random.Random) -> Job:
    sampling = greedy(rng.choice([4, 16, 30]))
    if rng.random() < 0.5:
        seed = rng.randint(0, 3)
        sampling = SamplingParams(max_tokens=16, seed=seed, top_p=0.95, ignore_eos=True)
    lengths, families = [2, 13, 21, 37], [0, 1, 2]
    return Job(
        rng.choice(lengths),
        rng.choice(families),
        rng.randint(0, 1),
        rng.choice([1, 1, 3]),
        sampling,
    )


def count(client: Client, kind: PreemptionKind, reason: PreemptionReason) -> int:
    places = [i for i, place in enumerate(PREEMPTIONS) if place[:2] == (kind, reason)]
    return sum(record.preemptions[i] for record in client.records for i in places)


def play(client: Client, rng: random.Random, requests: int) -> dict[int, Job]:
    """Requests of all classes, aborts and limits that move; returns those not aborted."""
    jobs: dict[int, Job] = {}
    for _ in range(requests):
        job = any_job(rng)
        request_id = client.submit(
            job.prompt, job.sampling, n=job.n, priority=rng.choice(list(Priority))
        )
        jobs[request_id] = job
        for _ in range(rng.choice([0, 0, 1, 3])):
            client.step()
        if rng.random() < 0.2:
            gone = rng.choice(list(jobs))
            client.cancel(gone)
            del jobs[gone]
        if rng.random() < 0.2:
            share, seqs = rng.choice([0.7, 1.0]), rng.choice([4, 8])
            settings = Settings(kv_watermark=share, max_num_seqs=seqs, prefill_share=share)
            client.loop.take(Commands(settings=settings))
        assert client.loop.faults() == []
    client.run()
    return jobs


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_outputs_under_pressure_are_the_undisturbed_ones(
    preemption: str, policy: str, seed: int
) -> None:
    client = Client(
        tiny_loop(
            kv_blocks=18,
            kv_spare=0,
            swap_bytes=SWAP_BLOCKS * BLOCK_BYTES,
            preemption=preemption,
            policy=policy,
        )
    )
    jobs = play(client, random.Random(seed), requests=60)
    assert len(jobs) > 30
    for request_id, job in jobs.items():
        for index, output in enumerate(undisturbed(job)):
            assert client.finishes[request_id, index] is FinishReason.LENGTH
            assert client.outputs[request_id, index] == output
    kind = PreemptionKind(preemption)
    assert count(client, kind, PreemptionReason.KV) > 3
    assert (count(client, kind, PreemptionReason.PRIORITY) > 0) is (policy == "priority")
    assert client.pool.used == 0
    assert client.loop.roster.view.kv.host.used == 0


def test_swapped_bytes_and_tokens_are_told_and_nothing_is_recomputed() -> None:
    client = Client(tiny_loop(kv_blocks=16, kv_spare=0, swap_bytes=2**20, preemption="swap"))
    for seed in range(6):
        client.submit(prompt_of(20, seed), greedy(30))
    client.run()
    records = client.records
    out = sum(record.swapped_out_bytes for record in records)
    assert out > 0
    assert out % BLOCK_BYTES == 0
    assert sum(record.swapped_in_bytes for record in records) <= out
    assert sum(record.swapped_tokens for record in records) > 60
    assert max(record.kv_swapped for record in records) * BLOCK_BYTES <= out
    assert sum(record.preempted_tokens + record.recomputed_tokens for record in records) == 0
    assert sum(record.prefill_tokens for record in records) == 6 * 20 + sum(
        record.preempted_swap for record in records
    )


def test_recomputed_tokens_are_those_that_the_cache_had_lost() -> None:
    client = Client(tiny_loop(kv_blocks=16, kv_spare=0))
    for seed in range(6):
        client.submit(prompt_of(20, seed), greedy(30))
    client.run()
    records = client.records
    lost = sum(record.preempted_tokens for record in records)
    again = sum(record.recomputed_tokens for record in records)
    assert 0 < again <= lost
    victims = sum(record.preempted_recompute for record in records)  # and their newest token each
    read = sum(record.prefill_tokens for record in records)
    assert 6 * 20 + again <= read <= 6 * 20 + again + victims


def test_a_stream_of_higher_requests_puts_one_back_three_times_and_then_waits() -> None:
    client = Client(tiny_loop(max_num_seqs=1, policy="priority"))
    low = client.submit(prompt_of(20), greedy(30), priority=Priority.BATCH)
    for _ in range(10):
        for _ in range(3):
            client.step()
        client.submit([5], greedy(1), priority=Priority.CRITICAL)
    client.run()
    recompute, priority = PreemptionKind.RECOMPUTE, PreemptionReason.PRIORITY
    assert count(client, recompute, priority) == sum(
        sum(record.preemptions) for record in client.records
    )
    assert count(client, recompute, priority) == 3
    assert client.outputs[low, 0] == alone(prompt_of(20), greedy(30))


@pytest.mark.parametrize("cap", [0, 1])
def test_everyone_finishes_although_all_are_exempt(cap: int) -> None:
    client = Client(tiny_loop(kv_blocks=10, kv_spare=0, max_preemptions=cap))
    ids = [client.submit(prompt_of(10, seed), greedy(60)) for seed in range(6)]
    client.run()
    for seed, request_id in enumerate(ids):
        assert client.outputs[request_id, 0] == alone(prompt_of(10, seed), greedy(60))
    assert sum(sum(record.preemptions) for record in client.records) < 15


def test_choices_inherit_how_often_their_prompt_was_put_back() -> None:
    client = Client(tiny_loop(max_num_seqs=2, policy="priority"))
    client.submit(prompt_of(60), greedy(9), n=2, priority=Priority.BATCH)
    client.step()
    client.submit([5], greedy(1), priority=Priority.CRITICAL)
    while len(client.loop.roster.view.running) < 2:
        client.step()
    assert [each.preemptions for each in client.loop.roster] == [1, 1]


def test_three_choices_share_their_prompt_through_preemption_and_swap() -> None:
    sampling = SamplingParams(max_tokens=40, seed=5, ignore_eos=True)
    job = Job(37, 0, 0, 3, sampling)
    for preemption in ("recompute", "swap"):
        client = Client(
            tiny_loop(kv_blocks=18, kv_spare=0, swap_bytes=2**20, preemption=preemption)
        )
        request_id = client.submit(job.prompt, sampling, n=3)
        other = client.submit(prompt_of(30, 9), greedy(40))
        client.step()
        client.step()
        client.step()
        assert client.pool.stored_tokens < 2 * 40 + 33  # the prompt once, and the other's
        client.run()
        assert [client.outputs[request_id, index] for index in range(3)] == undisturbed(job)
        assert client.outputs[other, 0] == alone(prompt_of(30, 9), greedy(40))
        assert sum(sum(record.preemptions) for record in client.records) > 0


def test_two_that_do_not_fit_together_do_not_take_turns() -> None:
    client = Client(tiny_loop(kv_blocks=16, kv_spare=0))
    for seed in range(2):
        client.submit(prompt_of(30, seed), greedy(90))
    client.run()
    assert [sum(record.preemptions) for record in client.records].count(1) == 1
    assert sum(sum(record.preemptions) for record in client.records) == 1


def test_63_blocks_are_refused_at_once_by_a_pool_of_50() -> None:
    client = Client(tiny_loop(kv_blocks=50))
    request_id = client.submit(prompt_of(300), greedy(63 * 8 - 300 + 1))
    fits = client.submit(prompt_of(300), greedy(50 * 8 - 300 + 1))
    client.step()
    assert client.finishes == {(request_id, 0): FinishReason.REFUSED}
    assert "exceed the KV pool of 400 tokens" in client.details[request_id, 0]
    client.run()
    assert client.finishes[fits, 0] is FinishReason.LENGTH


def abort_at_random(aborts: int, seed: int) -> Client:
    """Requests that are all aborted, at every stage of life."""
    rng = random.Random(seed)
    client = Client(
        tiny_loop(kv_blocks=18, kv_spare=0, swap_bytes=2**15, preemption="swap", policy="priority")
    )
    live: list[int] = []
    for _ in range(aborts):
        job = any_job(rng)
        priority = rng.choice(list(Priority))
        live.append(client.submit(job.prompt, job.sampling, n=job.n, priority=priority))
        if rng.random() < 0.4:
            client.step()
        if len(live) > 12:
            client.cancel(live.pop(rng.randrange(len(live))))
    for request_id in live:
        client.cancel(request_id)
    return client


@pytest.mark.parametrize(
    "aborts", [600, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_random_aborts_leave_every_block_free(aborts: int) -> None:
    client = abort_at_random(aborts, seed=1)
    kv = client.loop.roster.view.kv
    assert client.loop.faults() == []
    assert (kv.pool.used, kv.pool.available, kv.host.used) == (0, kv.pool.size, 0)
    kv.pool.drop_cached()
    assert kv.pool.free == kv.pool.size
    assert len(client.loop.roster) == 0
    client.run()
    assert not client.loop.busy
    assert sum(record.preempted_swap for record in client.records) > aborts / 100
