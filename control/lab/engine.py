"""The simulated engine: a scheduler that is exact, and a clock that a step-time model moves.

This is a simulation. It computes no token; a step takes tau = t0 + a*P + b*B + c*K seconds, and
what it swaps, and an answer is as long as the caller of SimulatedEngine says. What happens in a
step (who enters, reads, decodes, gives way) is what engine/scheduler.py would do under the policies
fcfs and priority, as long as no two prompts share a prefix and each request asks for one choice.
Of a request's tokens its sidecar hears the first when it comes and the others together with the
last; every step's record is told, at the latest before anything else happens.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from surgetank.control.lab.batch import Batch
from surgetank.control.lab.decoding import Place, Seq
from surgetank.control.lab.port import Job, Port
from surgetank.control.lab.record import Made, card_of, facts_of, left_of, record_of
from surgetank.control.lab.step import Step
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.timeline import Timeline, Timer
from surgetank.engine.api import GenerateRequest, ModelCard, Settings, Sink
from surgetank.telemetry.vocabulary import FinishReason

_WORKED_ON = (Place.READING, Place.DECODING, Place.HELD)


@dataclass(slots=True)
class Totals:
    """What an engine did since the run began, restarts included."""

    steps: int = 0
    busy: float = 0.0  # seconds
    prefill_tokens: int = 0
    decode_tokens: int = 0
    recomputed_tokens: int = 0
    swapped_tokens: int = 0
    preemptions: int = 0
    most_preempted: int = 0  # times that one request was


class SimulatedEngine:
    """One engine process. `answer_length` tells how long a request's answer will be."""

    def __init__(
        self,
        spec: EngineSpec,
        timeline: Timeline,
        answer_length: Callable[[GenerateRequest], int],
        rng: random.Random,
    ) -> None:
        self.card: ModelCard | None = None
        self.last_boundary = 0.0  # when the last step ended
        self.totals = Totals()
        self.jump = True  # several equal steps in one go; False only to show that it is the same
        self._spec = spec
        self._timeline = timeline
        self._answer_length = answer_length
        self._rng = rng
        self._ports: list[Port] = []
        self._order = count()
        self._settings: Settings | None = None
        self._stopped_until = self._slow_until = self._frozen_until = 0.0
        self._slowness = 1.0
        self._reset()

    def _reset(self) -> None:
        self._batch = Batch(self._spec)
        self._jobs: dict[Seq, Job] = {}
        self._inbox: dict[Job, None] = {}
        self._outbox: list[Job] = []
        self._deadlines: list[tuple[float, int, Job]] = []
        self._timer: Timer | None = None  # the end of what runs, or the next beginning
        self._run: list[Made] = []
        self._step = Step(self._batch.budget)
        self._delivering = False

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self._timeline.monotonic()

    def connect(self) -> Port:
        """A new sidecar's connection; before start()."""
        self._ports.append(Port(self))
        for port in self._ports:
            port.shared = len(self._ports) > 1
        return self._ports[-1]

    def start(self) -> None:
        """Come up, and say hello to every sidecar."""
        self.card = card_of(self._spec)
        for port in self._ports:
            port.up(self.card)

    # For the ports.

    def job(self, request: GenerateRequest, port: Port, sink: Sink) -> Job:
        """What the engine keeps of a request."""
        answer, asked = self._answer_length(request), request.sampling.max_tokens
        return Job(
            port=port,
            request_id=request.request_id,
            sink=sink,
            seq=Seq(len(request.prompt), min(answer, asked), request.priority, next(self._order)),
            size=len(request.prompt) + asked,
            finish=FinishReason.STOP if answer < asked else FinishReason.LENGTH,
            deadline=None if request.time_left is None else self.now + request.time_left,
        )

    def submit(self, job: Job) -> None:
        """Taken in before the next step."""
        self._inbox[job] = None
        self._wake()

    def cancel(self, job: Job) -> None:
        """Thrown out before the next step, unless it runs and the engine cannot stop it."""
        if self._unstoppable(job):
            return
        if job in self._inbox:
            del self._inbox[job]
        else:
            self._outbox.append(job)
            self._wake()

    def apply(self, settings: Settings) -> None:
        """New budgets before the next step, at most what the engine was built with."""
        self._settings = settings

    # Faults.

    def stop(self, seconds: float) -> None:
        """Stand still, as after SIGSTOP: the step in progress ends that much later."""
        before = max(self._stopped_until, self.now)
        self._stopped_until = max(before, self.now + seconds)
        longer = self._stopped_until - before
        if self._run and longer > 0 and self._timer is not None:
            self._run[-1].took += longer
            self._run[-1].at += longer
            self._timer.cancel()
            self._timer = self._timeline.call_at(self._run[-1].at, self._end)

    def slow(self, factor: float, seconds: float) -> None:
        """Every step that begins within `seconds` takes `factor` times as long."""
        self._slowness, self._slow_until = factor, self.now + seconds

    def freeze_metrics(self, seconds: float) -> None:
        """Tokens flow, but step records do not."""
        self._frozen_until = self.now + seconds

    def lose_kv(self, share: float, seconds: float) -> None:
        """A share of the KV blocks is gone for a while, with what was in them."""
        blocks = self._batch.blocks
        count = int(share * blocks.total)
        blocks.lose(count)
        self._timeline.call_later(seconds, lambda: blocks.lose(-count))

    def crash(self, seconds: float) -> None:
        """Die with every request, and come up again after so many seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._reset()
        self.card = None
        for port in self._ports:
            port.down("the simulated engine crashed")
        self._timeline.call_later(seconds, self.start)

    # The step loop.

    def _wake(self) -> None:
        if self._timer is None and not self._delivering:
            self._timer = self._timeline.call_later(0.0, self._begin)

    def _begin(self) -> None:
        """Take in what came, and make steps until something may happen."""
        self._timer = None
        now = self.now
        if now < self._stopped_until:
            self._timer = self._timeline.call_at(self._stopped_until, self._begin)
            return
        self._drain(now)
        if not len(self._batch):
            return
        idle = max(0.0, now - self.last_boundary)
        step = self._step = self._batch.plan()
        self._count_preemptions(step)
        quiet_until = min(self._timeline.next_at(), self._next_deadline())
        at = now
        while True:
            took = self._duration(step, at)
            at += took
            batch = self._batch
            made = Made(at, took, idle, step.context, batch.blocks.counts, batch.stored_tokens)
            self._run.append(made)
            idle = 0.0
            if at >= quiet_until or not self.jump or not self._batch.repeats(step):
                break
            self.last_boundary = at
            self._batch.again(step)
        self._timer = self._timeline.call_at(at, self._end)

    def _end(self) -> None:
        """Deliver what the steps made; the next begins when everyone has heard of it."""
        self._timer, self._delivering = None, True
        run, self._run = self._run, []
        step, jobs = self._step, self._jobs
        self.last_boundary = run[-1].at
        self._count(step, run)
        batch = self._batch
        facts = facts_of(batch, self._spec, step)
        records = [record_of(step, made, facts) for made in run[:-1]]
        ended = batch.settle(step)
        run[-1].kv, run[-1].kv_stored = batch.blocks.counts, batch.stored_tokens
        records.append(record_of(step, run[-1], {**facts, **left_of(batch)}))
        for seq in step.started:
            jobs[seq].started(0)
        for seq in ended:
            job = jobs.pop(seq)
            job.tokens(seq.target - job.told, job.finish)
        for seq in step.ready:
            if seq.place is not Place.GONE and seq.out == 1:
                jobs[seq].tokens(1, None)
        frozen = self.now < self._frozen_until
        for port in self._ports:
            for record in records:
                port.told(None if frozen else record)
        self._delivering = False
        self._wake()

    def _drain(self, now: float) -> None:
        """Commands, settings and deadlines, between two steps."""
        if self._settings is not None:
            self._batch.apply(self._settings)
            self._settings = None
        self._delivering = True
        while self._next_deadline() <= now:
            job = heapq.heappop(self._deadlines)[2]
            if self._unstoppable(job):
                continue
            self._batch.drop(job.seq)
            del self._jobs[job.seq]
            job.tokens(0, FinishReason.DEADLINE)
        while self._inbox or self._outbox:
            inbox, self._inbox = self._inbox, {}
            outbox, self._outbox = self._outbox, []
            for job in inbox:
                self._take_in(job)
            for job in outbox:
                self._batch.drop(job.seq)
                self._jobs.pop(job.seq, None)
        self._delivering = False

    def _take_in(self, job: Job) -> None:
        most = min(self._spec.context_length, self._batch.blocks.limit * self._spec.block_size)
        if job.size > most:
            detail = f"{job.size} tokens exceed the {most} that fit"
            job.tokens(0, FinishReason.REFUSED, detail)
            return
        self._jobs[job.seq] = job
        self._batch.add(job.seq)
        if job.deadline is not None:
            heapq.heappush(self._deadlines, (job.deadline, job.seq.order, job))

    def _next_deadline(self) -> float:
        while self._deadlines and self._deadlines[0][2].seq.place is Place.GONE:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else float("inf")

    def _unstoppable(self, job: Job) -> bool:
        return not self._spec.stoppable and job.seq.place in _WORKED_ON

    def _duration(self, step: Step, at: float) -> float:
        spec = self._spec
        took = spec.model.seconds(step.prefill, step.decode, step.context)
        took += (step.swapped_in + step.swapped_out) * spec.swap_seconds / 2
        if at < self._slow_until:
            took *= self._slowness
        if (noise := spec.noise) > 0:
            took *= self._rng.lognormvariate(-noise * noise / 2, noise)
        return took

    def _count(self, step: Step, run: list[Made]) -> None:
        totals = self.totals
        for made in run:
            totals.steps += 1
            made.number = totals.steps
            totals.busy += made.took
        totals.prefill_tokens += step.prefill
        totals.decode_tokens += step.decode * len(run)
        self._batch.learn(len(run))

    def _count_preemptions(self, step: Step) -> None:
        totals = self.totals
        totals.recomputed_tokens += step.recomputed
        for gone in step.preempted:
            totals.preemptions += 1
            totals.most_preempted = max(totals.most_preempted, gone.seq.preemptions)
