"""One way to the engine stub: through a proxy or straight to it, and what was measured on it."""

import asyncio
import random
import statistics
from dataclasses import dataclass, field
from time import monotonic

from surgetank.control.bench.proxy.client import Pool
from surgetank.control.bench.proxy.process import Process
from surgetank.control.bench.proxy.slow import Slow

CALLERS = 32  # of plain answers
CALL_EVERY = 0.02  # seconds between two calls of one of them, if it can
STREAMS = 64  # at once: a batch of an engine
GAP = 10_000  # microseconds between two of its steps
SHORT, SHORT_GAP = 16, 5_000  # the streams whose first event is timed: events, microseconds


@dataclass(slots=True, eq=False)
class Side:
    """Costs are CPU seconds, one a round; latencies are seconds, a list a round."""

    name: str
    pool: Pool
    process: Process | None  # None: straight to the stub
    idle: float = 0.0  # CPU seconds a second that pass without work
    requests: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    first: list[list[float]] = field(default_factory=list)
    slow: list[Slow] = field(default_factory=list)

    async def rest(self, seconds: float) -> None:
        """Measure what it takes while nobody asks."""
        before = self._cpu()
        await asyncio.sleep(seconds)
        self.idle = (self._cpu() - before) / seconds

    async def call(self, seconds: float) -> None:
        """Plain answers, the same number a second for all that can keep up."""
        done = 0

        async def caller(number: int) -> None:
            nonlocal done
            due = monotonic() + number * CALL_EVERY / CALLERS
            while (due := max(due, monotonic() - CALL_EVERY)) < until:
                await asyncio.sleep(max(0.0, due - monotonic()))
                await self.pool.ask(0, 0)
                done += 1
                due += CALL_EVERY

        begun, until, before = monotonic(), monotonic() + seconds, self._cpu()
        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(caller(number))
        spent = self._cpu() - before - self.idle * (monotonic() - begun)
        self.requests.append(spent / done)

    async def stream(self, events: int) -> None:
        """A batch of streams; after call(), whose cost of a request is taken off."""
        begun, before = monotonic(), self._cpu()
        async with asyncio.TaskGroup() as group:
            for _ in range(STREAMS):
                group.create_task(self.pool.ask(events, GAP))
        spent = self._cpu() - before - self.idle * (monotonic() - begun)
        self.tokens.append((spent - STREAMS * self.requests[-1]) / (STREAMS * events))

    @property
    def half_load(self) -> float:
        """Short streams a second with which it is half busy."""
        cost = statistics.median(self.requests) + SHORT * statistics.median(self.tokens)
        return 0.5 / cost

    async def time_first(self, rate: float, seconds: float, rng: random.Random) -> None:
        """Short streams at random moments; each first event's time counts from its own moment."""
        found: list[float] = []

        async def one(begun: float) -> None:
            answer = await self.pool.ask(SHORT, SHORT_GAP, begun=begun)
            found.append(answer.first - begun)

        due, until = monotonic(), monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while (due := due + rng.expovariate(rate)) < until:
                await asyncio.sleep(max(0.0, due - monotonic()))
                group.create_task(one(due))
        self.first.append(found)

    def added(self, direct: "Side", percent: int) -> float:
        """Seconds that it adds to the time to the first event: round by round beside the direct
        way, then the median."""
        pairs = zip(self.first, direct.first, strict=True)
        return statistics.median(_at(ours, percent) - _at(bare, percent) for ours, bare in pairs)

    def resident(self) -> int:
        """Bytes of memory that the proxy has; 0 on the direct way."""
        return 0 if self.process is None else self.process.resident()

    def _cpu(self) -> float:
        return 0.0 if self.process is None else self.process.cpu()


def _at(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
