"""The simulated batch makes the very steps that the real scheduler makes."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from surgetank.control.lab.batch import Batch
from surgetank.control.lab.budgets import Budgets
from surgetank.control.lab.decoding import Place, Seq
from surgetank.control.lab.steptime import EngineSpec, StepModel
from surgetank.engine.api import SamplingParams, Settings
from surgetank.engine.kv.manager import KVManager
from surgetank.engine.plan import Budget
from surgetank.engine.policies.table import POLICIES
from surgetank.engine.roster import Roster
from surgetank.engine.scheduler import schedule
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.stepmodel import ENOUGH
from surgetank.telemetry.vocabulary import PreemptionKind, Priority


@dataclass(frozen=True)
class Job:
    """A request that comes before step `at`; it is cancelled before step `gone`, if ever."""

    at: int
    prompt: int
    output: int
    priority: Priority
    gone: int | None = None


@dataclass(frozen=True)
class Seen:
    """What one step did: everything that the step model and the step record tell of it."""

    prefill: int
    decode: int
    context: int
    preempted: tuple[tuple[int, str, str, int], ...]  # who, how, why, tokens stored
    swapped_out: int
    swapped_in: int
    recomputed: int
    starved: int
    room: int
    running: tuple[int, ...]
    waiting: int
    swapped: int
    used: int
    free: int
    stored: int
    blocked_by: str
    backlog: int


def jobs(rng: random.Random, count: int, spread: int, longest: int) -> list[Job]:
    made = []
    for _ in range(count):
        at = rng.randrange(spread)
        made.append(
            Job(
                at=at,
                prompt=rng.randint(1, longest),
                output=rng.randint(1, longest),
                priority=rng.choice(list(Priority)),
                gone=at + rng.randint(0, 40) if rng.random() < 0.2 else None,
            )
        )
    return sorted(made, key=lambda job: job.at)


class RealEngine:
    """engine/scheduler.py with a model that always has a next token."""

    def __init__(self, spec: EngineSpec) -> None:
        policy = POLICIES["priority" if spec.by_priority else "fcfs"]
        kv = KVManager(spec.kv_blocks, spec.block_size, spec.swap_blocks)
        self.roster = Roster(kv, policy)
        self.budget = budgets_of(spec).budget
        self.sequences: dict[int, Sequence] = {}

    def add(self, number: int, job: Job) -> None:
        self.sequences[number] = Sequence(
            request_id=number,
            index=0,
            tokens=[number * 100_000 + i for i in range(job.prompt)],
            prompt_len=job.prompt,
            sampling=SamplingParams(max_tokens=job.output),
            seed=0,
            stop_ids=frozenset(),
            order=number,
            priority=job.priority,
        )
        self.roster.add(self.sequences[number])

    def cancel(self, number: int) -> None:
        if number in self.roster:
            self.roster.remove(self.sequences[number])

    def set(self, budget: Budget, blocks: int) -> None:
        self.budget, self.roster.view.kv.pool.limit = budget, blocks

    def step(self) -> Seen:
        view = self.roster.view
        plan = schedule(view, self.budget)
        self.roster.follow(plan)
        again = [each for each in plan.admitted if each.started]
        for sequence in plan.admitted:
            sequence.started = True
        recomputed = sum(max(0, each.lost - each.table.stored) for each in again)
        ready = [each for each, count in plan.chunks if count == each.remaining]
        running, waiting = tuple(each.request_id for each in view.running), len(view.waiting)
        for sequence, count in plan.chunks:
            view.kv.fill(sequence.table, sequence.tokens, count)
        for sequence in ready:
            token = sequence.request_id * 100_000 + len(sequence.tokens)
            if sequence.append(token) is not None:
                self.roster.remove(sequence)
        unread = [each for each in view.running if not each.decoding] + view.waiting
        return Seen(
            prefill=plan.prefill_tokens,
            decode=len(plan.decode),
            context=plan.context,
            preempted=tuple(
                (each.sequence.request_id, each.kind, each.reason, each.tokens)
                for each in plan.preempted
            ),
            swapped_out=len(plan.swaps_out),
            swapped_in=len(plan.swaps_in),
            recomputed=recomputed,
            starved=plan.starved,
            room=plan.room(self.budget),
            running=running,
            waiting=waiting,
            swapped=view.kv.host.used,
            used=view.kv.pool.used,
            free=view.kv.pool.free,
            stored=view.kv.pool.stored_tokens,
            blocked_by=plan.blocked_by,
            backlog=sum(each.remaining - each.table.host_stored for each in unread),
        )


class SimulatedEngine:
    """The lab's batch, without time."""

    def __init__(self, spec: EngineSpec) -> None:
        self.batch = Batch(spec)
        self.batch.learn(ENOUGH)
        self.seqs: dict[int, Seq] = {}

    def add(self, number: int, job: Job) -> None:
        self.seqs[number] = Seq(job.prompt, job.output, job.priority, number)
        self.batch.add(self.seqs[number])

    def cancel(self, number: int) -> None:
        if self.seqs[number].place is not Place.GONE:
            self.batch.drop(self.seqs[number])

    def set(self, budget: Budget, blocks: int) -> None:
        self.batch.budget, self.batch.blocks.limit = budget, blocks

    def step(self) -> Seen:
        batch = self.batch
        step = batch.plan()
        running = tuple(seq.order for seq in batch.running)
        waiting = sum(batch.waiting.values())
        batch.settle(step)
        return Seen(
            prefill=step.prefill,
            decode=step.decode,
            context=step.context,
            preempted=tuple(
                (gone.seq.order, gone.kind, gone.reason, gone.tokens) for gone in step.preempted
            ),
            swapped_out=step.swapped_out,
            swapped_in=step.swapped_in,
            recomputed=step.recomputed,
            starved=step.starved,
            room=step.room(),
            running=running,
            waiting=waiting,
            swapped=batch.blocks.swapped,
            used=batch.blocks.used,
            free=batch.blocks.free,
            stored=batch.stored_tokens,
            blocked_by=step.blocked_by,
            backlog=batch.backlog,
        )


Changes = dict[int, Callable[[Budget], Budget]]  # of the budget, before that step


def unchanged(budget: Budget) -> Budget:
    return budget


def budgets_of(spec: EngineSpec) -> Budgets:
    """Of an engine that has learnt how fast it is."""
    budgets = Budgets(spec)
    budgets.stepped(ENOUGH)
    return budgets


def play(
    spec: EngineSpec,
    work: list[Job],
    changes: Changes | None = None,
    pool: dict[int, int] | None = None,
) -> tuple[list[Seen], list[Seen]]:
    """The same work by both; `pool`: blocks that may be held, from that step on."""
    seen: tuple[list[Seen], list[Seen]] = ([], [])
    engines: tuple[RealEngine | SimulatedEngine, ...] = (RealEngine(spec), SimulatedEngine(spec))
    for engine, told in zip(engines, seen, strict=True):
        budget, blocks = budgets_of(spec).budget, spec.kv_blocks
        for number in range(3000):
            budget = (changes or {}).get(number, unchanged)(budget)
            blocks = (pool or {}).get(number, blocks)
            engine.set(budget, blocks)
            for index, job in enumerate(work):
                if job.at == number:
                    engine.add(index, job)
                if job.gone == number:
                    engine.cancel(index)
            told.append(engine.step())
            if number > 120 and not told[-1].running and not told[-1].waiting:
                break
        else:
            pytest.fail("the engine never came to rest")
    return seen


ROOMY = EngineSpec(max_num_seqs=6, max_batch_tokens=24, block_size=4, kv_blocks=400)
TIGHT = EngineSpec(max_num_seqs=8, max_batch_tokens=24, block_size=4, kv_blocks=24, kv_spare=0.1)
BY_CLASS = TIGHT.model_copy(update={"by_priority": True})
SHARED = TIGHT.model_copy(update={"prefill_share": 0.4})
CALM = BY_CLASS.model_copy(update={"displace": False})
FEW_SLOTS = BY_CLASS.model_copy(update={"max_num_seqs": 3, "kv_blocks": 60})
UNCAPPED = BY_CLASS.model_copy(update={"max_preemptions": 1000})
NEVER = TIGHT.model_copy(update={"max_preemptions": 0})
ONCE_BY_CLASS = BY_CLASS.model_copy(update={"max_preemptions": 1})
SWAPPING = BY_CLASS.model_copy(update={"preemption": "swap", "swap_blocks": 400})
LITTLE_HOST = SWAPPING.model_copy(update={"swap_blocks": 12})  # then it is computed again
AUTO = BY_CLASS.model_copy(update={"swap_blocks": 50, "swap_seconds": 9e-5})  # as it pays
# 10 ms a step, .4 ms a prompt token, 1 ms a sequence, and context that counts.
SLOW = StepModel(t0=0.010, a=0.0004, b=0.001, c=0.00002)
TIMED = ROOMY.model_copy(
    update={
        "model": SLOW, "tpot_target": 0.018, "min_prefill_tokens": 2, "by_priority": True,
        "max_num_seqs": 12, "max_batch_tokens": 64,
    }
)  # fmt: skip
OUT_OF_REACH = TIMED.model_copy(update={"tpot_target": 0.001})
BY_KV = [TIGHT, BY_CLASS, SHARED, CALM, UNCAPPED, NEVER, ONCE_BY_CLASS]
BY_SWAP = [SWAPPING, LITTLE_HOST, AUTO]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spec", [ROOMY, FEW_SLOTS, *BY_KV, *BY_SWAP, TIMED, OUT_OF_REACH], ids=str)
def test_same_steps_as_the_real_scheduler(spec: EngineSpec, seed: int) -> None:
    work = jobs(random.Random(seed), count=60, spread=120, longest=40)
    real, simulated = play(spec, work)
    assert simulated == real
    if spec.kv_blocks == TIGHT.kv_blocks and spec.max_preemptions > 1:
        assert sum(len(step.preempted) for step in real) > 10  # the case was worth its name


@pytest.mark.parametrize("seed", range(6))
def test_same_steps_when_the_token_budget_falls_below_the_batch(seed: int) -> None:
    work = jobs(random.Random(seed), count=60, spread=60, longest=40)
    sizes = {20: 3, 40: 1, 55: 24, 70: 5, 100: 24}
    changes: Changes = {
        at: lambda old, size=size: replace(old, tokens=size, prefill_tokens=size)  # type: ignore[misc]
        for at, size in sizes.items()
    }
    for spec in (ROOMY, TIGHT, BY_CLASS):
        real, simulated = play(spec, work, changes)
        assert simulated == real


@pytest.mark.parametrize("seed", range(6))
def test_same_steps_when_the_pool_shrinks_and_grows_again(seed: int) -> None:
    work = jobs(random.Random(seed), count=60, spread=60, longest=40)
    for spec in (TIGHT, BY_CLASS, SWAPPING):
        real, simulated = play(spec, work, pool={25: 14, 60: 20, 90: 24})
        assert simulated == real


def test_the_cases_are_what_they_are_named_for() -> None:
    work = jobs(random.Random(1), count=60, spread=120, longest=40)

    def real(spec: EngineSpec) -> list[Seen]:
        return play(spec, work)[0]

    def victims(spec: EngineSpec) -> list[tuple[int, str, str, int]]:
        return [gone for step in real(spec) for gone in step.preempted]

    assert {why for _, _, why, _ in victims(FEW_SLOTS)} == {"priority"}
    assert {why for _, _, why, _ in victims(BY_CLASS)} == {"kv", "priority"}
    assert {how for _, how, _, _ in victims(SWAPPING)} == {PreemptionKind.SWAP}
    assert sum(step.swapped_in for step in real(SWAPPING)) > 0
    often = [who for who, _, _, _ in victims(UNCAPPED)]
    assert max(map(often.count, often)) == 3
    capped = [who for who, _, _, _ in victims(ONCE_BY_CLASS)]
    assert max(map(capped.count, capped)) <= 2
    assert sum(step.starved for step in real(ONCE_BY_CLASS)) > 0
    timed = [step for step in real(TIMED) if step.decode and step.prefill]
    assert sum(step.room == 0 and step.prefill + step.decode < 64 for step in timed) > 5


def test_settings_make_the_same_budget_as_in_the_engine() -> None:
    budgets = budgets_of(TIMED)
    budgets.apply(Settings(max_num_seqs=99, max_batch_tokens=40, prefill_share=0.5))
    budgets.apply(Settings(kv_watermark=0.25, tpot_target=0.0))
    budget = budgets.budget
    assert (budget.sequences, budget.tokens, budget.prefill_tokens) == (12, 40, 20)
    assert budget.seconds == float("inf")
    assert budgets.kv_blocks == 100
