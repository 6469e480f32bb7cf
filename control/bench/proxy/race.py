"""`surgetank bench proxy`: the sidecar with its full gate beside other proxies, on one engine stub.

All proxies run at once, each with one thread of work, on one core; the stub and the clients have
another. In every round each of them gets the same load in turn, so that what else the machine does
hits all alike; ratios are taken within a round, and their median counts.
"""

import asyncio
import gc
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from surgetank.control.bench.document import BenchError, document
from surgetank.control.bench.proxy.client import Pool
from surgetank.control.bench.proxy.idle import STREAMS, Idle, idle
from surgetank.control.bench.proxy.peers import DIRECT, HOW, OURS, PEERS, plan
from surgetank.control.bench.proxy.process import Process, free_port, on, start, stub
from surgetank.control.bench.proxy.report import ratios_of, rows_of, tables_of
from surgetank.control.bench.proxy.side import Side
from surgetank.control.bench.proxy.slow import slow
from surgetank.control.bench.scenarios.cores import own
from surgetank.control.openfiles import raise_limit
from surgetank.telemetry.clock import Clock

_WARM = 0.3  # seconds of calls before anything counts


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to measure, and how long."""

    quick: bool = False
    rounds: int | None = None
    peers: tuple[str, ...] | None = None  # None: all that are installed
    idle: bool = True  # the memory of idle streams too

    @property
    def length(self) -> "Length":
        """Rounds and the length of their parts."""
        length = Length(2, 1.0, 150, 1.0) if self.quick else Length(5, 3.0, 400, 4.0)
        return length if self.rounds is None else Length(self.rounds, *length.parts)


@dataclass(frozen=True, slots=True)
class Length:
    """Of a run."""

    rounds: int
    call_seconds: float
    stream_events: int
    first_seconds: float

    @property
    def parts(self) -> tuple[float, int, float]:
        """All but the rounds."""
        return self.call_seconds, self.stream_events, self.first_seconds


def compete(wishes: Wishes, clock: Clock, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure and report. Raises BenchError."""
    unknown = set(wishes.peers or ()) - set(PEERS)
    if unknown:
        raise BenchError(f"peer is {', '.join(unknown)}; allowed: {', '.join(PEERS)}")
    raise_limit()
    cores = own()
    ours, theirs = cores[-1:], cores[:1]
    with on(theirs), tempfile.TemporaryDirectory(prefix="surgetank-") as folder:
        run = _Run(wishes, Path(folder), ours, say)
        uvloop.run(run.measure(theirs))
    settings = {
        "rounds": wishes.length.rounds,
        "cores": "one for the proxies, one for stub and clients"
        if ours != theirs
        else "one for all",
    }
    ratios = ratios_of(run.sides, run.idle)
    figures = {
        "ratios": ratios,
        "rows": rows_of(run.sides),
        "holds": all(each["ratio"] <= each["goal"] for each in ratios if each["goal"] is not None),
    }
    return document("proxy", clock, settings, figures, tables_of(run.sides, ratios), run.notes)


class _Run:
    """One run, from starting everything to ending it."""

    def __init__(
        self, wishes: Wishes, folder: Path, cores: Sequence[int], say: Callable[[str], None]
    ) -> None:
        self.sides: list[Side] = []  # the direct way first, then ours
        self.idle: Idle | None = None
        self.notes: list[str] = []
        self._wishes = wishes
        self._folder = folder
        self._cores = cores
        self._say = say

    async def measure(self, theirs: Sequence[int]) -> None:
        """Everything; raises BenchError."""
        with ExitStack() as stack:
            upstream = stack.enter_context(stub(theirs))
            await self._start(upstream, stack)
            gc.freeze()
            await self._rounds()
        if self._wishes.idle:
            self._say("idle streams")
            with ExitStack() as stack:
                await self._fill(stack.enter_context(stub(theirs)), stack)

    async def _start(self, upstream: int, stack: ExitStack) -> None:
        """All at once; a peer that does not come up is left out and named."""
        self.sides = [Side(DIRECT, Pool(upstream), None)]
        started = []
        for name in (OURS, *(PEERS if self._wishes.peers is None else self._wishes.peers)):
            process = self._launch(name, upstream, self._folder / name, stack)
            if process is None:
                self.notes.append(f"{name} is not installed; to compare: {HOW[name]}")
            else:
                started.append(process)
        for process in started:
            self._say(f"waiting for {process.name}")
            side = Side(process.name, Pool(process.port), process)
            self.sides.append(side)
            with self._or_without(side):
                await process.ready()
        for side in self.sides:
            stack.callback(side.pool.close)

    def _launch(self, name: str, upstream: int, folder: Path, stack: ExitStack) -> Process | None:
        port = free_port()
        folder.mkdir()
        planned = plan(name, upstream, port, folder)
        if planned is None:
            return None
        process = start(planned, port, folder, self._cores)
        stack.callback(process.end)
        return process

    async def _rounds(self) -> None:
        length, rng = self._wishes.length, random.Random(1)
        for side in list(self.sides):
            with self._or_without(side):
                await side.call(_WARM)
                await side.stream(20)
            side.requests.clear()
            side.tokens.clear()
        await asyncio.gather(*(side.rest(2.0) for side in self.sides))
        for number in range(length.rounds):
            for side in rng.sample(self.sides, len(self.sides)):
                self._say(f"round {number + 1} of {length.rounds}: {side.name}")
                with self._or_without(side):
                    await side.call(length.call_seconds)
                    await side.stream(length.stream_events)
            for side in rng.sample(self.sides, len(self.sides)):
                rate = min(each.half_load for each in (self.sides[1], side) if each.process)
                with self._or_without(side):
                    await side.time_first(rate, length.first_seconds, rng)
            for side in rng.sample(self.sides, len(self.sides)):
                self._say(f"round {number + 1}, beside slow readers: {side.name}")
                with self._or_without(side):
                    side.slow.append(await slow(side))

    async def _fill(self, upstream: int, stack: ExitStack) -> None:
        """A sidecar of its own, which has seen nothing yet, is filled with idle streams."""
        process = self._launch(OURS, upstream, self._folder / "idle", stack)
        if process is None:
            return
        await process.ready()
        side = Side(OURS, Pool(process.port), process)
        stack.callback(side.pool.close)
        with self._or_without(side):
            await side.call(_WARM)
            await side.stream(20)
            self.idle = found = await idle(side)
            if found.streams < STREAMS:
                self.notes.append(
                    f"{found.streams:,} idle streams were opened, as many as the system's limit of"
                    f" open files allows; they took {found.bytes / 1e6:.0f} MB"
                )

    @contextmanager
    def _or_without(self, side: Side) -> Iterator[None]:
        """A peer that fails is left out, which a note says. Without ours there is no bench."""
        try:
            yield
        except* (BenchError, OSError) as group:
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            words = f"{side.name}: {first}"
            if side.name in (OURS, DIRECT):
                raise BenchError(words) from None
            self.notes.append(f"left out: {words}")
            self.sides.remove(side)
