"""The simulated batch makes the very steps that the real scheduler makes."""

import math
import random
from dataclasses import dataclass

import pytest

from surgetank.control.lab.batch import Batch
from surgetank.control.lab.decoding import Place, Seq
from surgetank.control.lab.steptime import EngineSpec
from surgetank.engine.api import SamplingParams
from surgetank.engine.kv.manager import KVManager
from surgetank.engine.plan import Budget
from surgetank.engine.policies.table import POLICIES
from surgetank.engine.roster import Roster
from surgetank.engine.scheduler import schedule
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import Priority


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
    preempted: int
    preempted_tokens: int
    running: int
    waiting: int
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
        self.roster = Roster(KVManager(spec.kv_blocks, spec.block_size), policy)
        self.budget = Budget(
            tokens=spec.max_batch_tokens,
            prefill_tokens=max(1, int(spec.max_batch_tokens * spec.prefill_share)),
            sequences=spec.max_num_seqs,
            spare_blocks=math.ceil(spec.kv_blocks * spec.kv_spare),
        )
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

    def step(self) -> Seen:
        view = self.roster.view
        plan = schedule(view, self.budget)
        self.roster.follow(plan)
        context = sum(each.table.stored + count for each, count in plan.chunks)
        ready = [each for each, count in plan.chunks if count == each.remaining]
        running, waiting = len(view.running), len(view.waiting)
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
            context=context,
            preempted=len(plan.preempted),
            preempted_tokens=plan.preempted_tokens,
            running=running,
            waiting=waiting,
            used=view.kv.pool.used,
            free=view.kv.pool.free,
            stored=view.kv.pool.stored_tokens,
            blocked_by=plan.blocked_by,
            backlog=sum(each.remaining for each in unread),
        )


class SimulatedEngine:
    """The lab's batch, without time."""

    def __init__(self, spec: EngineSpec) -> None:
        self.batch = Batch(spec)
        self.seqs: dict[int, Seq] = {}

    def add(self, number: int, job: Job) -> None:
        self.seqs[number] = Seq(job.prompt, job.output, job.priority, number)
        self.batch.add(self.seqs[number])

    def cancel(self, number: int) -> None:
        if self.seqs[number].place is not Place.GONE:
            self.batch.drop(self.seqs[number])

    def step(self) -> Seen:
        batch = self.batch
        step = batch.plan()
        running, waiting = len(batch.running), sum(batch.waiting.values())
        batch.settle(step)
        return Seen(
            prefill=step.prefill,
            decode=step.decode,
            context=step.context,
            preempted=len(step.preempted),
            preempted_tokens=step.preempted_tokens,
            running=running,
            waiting=waiting,
            used=batch.blocks.used,
            free=batch.blocks.free,
            stored=batch.stored_tokens,
            blocked_by=step.blocked_by,
            backlog=batch.backlog,
        )


def play(
    engine: RealEngine | SimulatedEngine, work: list[Job], budgets: dict[int, int]
) -> list[Seen]:
    seen: list[Seen] = []
    for number in range(3000):
        if number in budgets:
            set_tokens(engine, budgets[number])
        for index, job in enumerate(work):
            if job.at == number:
                engine.add(index, job)
        for index, job in enumerate(work):
            if job.gone == number and job.at <= number:
                engine.cancel(index)
        seen.append(engine.step())
        if number > 120 and not seen[-1].running and not seen[-1].waiting:
            return seen
    pytest.fail("the engine never came to rest")


def set_tokens(engine: RealEngine | SimulatedEngine, tokens: int) -> None:
    if isinstance(engine, SimulatedEngine):
        engine.batch.tokens = tokens
    else:
        old = engine.budget
        engine.budget = Budget(tokens, tokens, old.sequences, old.spare_blocks)


ROOMY = EngineSpec(max_num_seqs=6, max_batch_tokens=24, block_size=4, kv_blocks=400)
TIGHT = EngineSpec(max_num_seqs=8, max_batch_tokens=24, block_size=4, kv_blocks=24, kv_spare=0.1)
BY_CLASS = TIGHT.model_copy(update={"by_priority": True})
SHARED = TIGHT.model_copy(update={"prefill_share": 0.4})


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spec", [ROOMY, TIGHT, BY_CLASS, SHARED], ids=str)
def test_same_steps_as_the_real_scheduler(spec: EngineSpec, seed: int) -> None:
    work = jobs(random.Random(seed), count=60, spread=120, longest=40)
    real = play(RealEngine(spec), work, {})
    simulated = play(SimulatedEngine(spec), work, {})
    assert simulated == real
    if spec.kv_blocks == TIGHT.kv_blocks:
        assert sum(step.preempted for step in real) > 10  # the case was worth its name


@pytest.mark.parametrize("seed", range(6))
def test_same_steps_when_the_token_budget_falls_below_the_batch(seed: int) -> None:
    work = jobs(random.Random(seed), count=60, spread=60, longest=40)
    budgets = {20: 3, 40: 1, 55: 24, 70: 5, 100: 24}
    for spec in (ROOMY, TIGHT):
        assert play(SimulatedEngine(spec), work, budgets) == play(RealEngine(spec), work, budgets)
