"""The retry storm: the engine stops for some seconds, with and without the gate in front of it."""

import asyncio
import json
import os
import platform
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from surgetank.control.demo.load import Callers, Sample, Shape, arrivals, closed_loop, open_loop
from surgetank.control.demo.service import Service, ServiceError, running
from surgetank.control.demo.stall import Stall, StoppedProcess, frozen_wire
from surgetank.control.demo.table import RUNS
from surgetank.control.demo.verdict import Episode, Verdict, judge
from surgetank.telemetry.clock import Clock

Say = Callable[[str], None]
UNPROTECTED, PROTECTED = RUNS
MORE = 1.1  # times the answers: twice as many callers are worth it


@dataclass(frozen=True)
class Plan:
    """The script. Times in seconds, the load as a share of the capacity measured first.

    Callers are as patient on a slow machine as on a fast one: `patience` times what an answer takes
    when the engine is full. The stall outlasts them, so that every caller in it retries.
    """

    seed: int = 1
    load: float = 0.9
    probe: float = 8.0  # closed loop at one width, while capacity is measured
    warm_up: float = 8.0  # not judged
    steady: float = 14.0
    stall: float = 10.0
    after: float = 40.0
    patience: float = 1.5
    prompt_words: int = 40
    max_tokens: int = 32

    @property
    def stall_start(self) -> float:
        """When the engine is stopped, counted from the first call."""
        return self.warm_up + self.steady

    @property
    def duration(self) -> float:
        """How long calls are started."""
        return self.stall_start + self.stall + self.after


@dataclass(frozen=True)
class Foreign:
    """Another maker's engine, which is there already."""

    url: str
    pid: int | None = None  # its process; None: the wire to it is frozen instead


@dataclass(frozen=True)
class Behind:
    """The same, with how it is stopped and where it is reached."""

    stall: Stall
    url: str


@dataclass(frozen=True)
class Result:
    """Both runs, and what they were measured with."""

    engine: str  # "" for the embedded one
    capacity: float  # calls per second, closed loop
    offered: float  # calls per second
    timeout: float  # seconds that a caller gives one attempt
    episodes: dict[str, Episode]
    verdicts: dict[str, Verdict]


async def _stall(stall: Stall, plan: Plan, say: Say) -> None:
    await asyncio.sleep(plan.stall_start)
    say(f"the engine ({stall.name}) is stopped for {plan.stall:.0f} s")
    try:
        stall.begin()
        await asyncio.sleep(plan.stall)
    finally:
        stall.end()
    say("the engine goes on")


async def _narrate(name: str, samples: list[Sample], plan: Plan, say: Say) -> None:
    every = 5
    for at in range(every, int(plan.duration) + 1, every):
        await asyncio.sleep(every)
        ended = [sample.ok for sample in samples if at - every <= sample.ended < at]
        answered, failed = sum(ended), len(ended) - sum(ended)
        say(f"{name:<12}{at:>4} s {answered / every:5.1f} answered/s, {failed} failed")


async def _episode(
    name: str,
    address: str,
    stall: Stall,
    plan: Plan,
    shape: Shape,
    rate: float,
    clock: Clock,
    say: Say,
) -> Episode:
    samples: list[Sample] = []
    callers = Callers(address, shape, random.Random(plan.seed), clock)
    times = arrivals(rate, plan.duration, random.Random(plan.seed))  # the same in both runs
    narrator = asyncio.create_task(_narrate(name, samples, plan, say))
    try:
        await asyncio.gather(
            open_loop(callers, times, clock, samples.append),
            _stall(stall, plan, say),
        )
    finally:
        narrator.cancel()
        await callers.close()
    return Episode(
        samples=tuple(sorted(samples, key=lambda sample: sample.started)),
        stall_start=plan.stall_start,
        stall_end=plan.stall_start + plan.stall,
        duration=plan.duration,
    )


async def _capacity(service: Service, plan: Plan, clock: Clock, say: Say) -> tuple[float, int]:
    """Calls per second that the engine answers when full, and how many callers fill it.

    Twice as many callers each time, until more of them get no more answers: another maker's engine
    often does not say how many requests it runs at once."""
    slots, best, filled = int(service.engine()["max_num_seqs"]), 0.0, 1
    for width in (*takewhile(slots.__gt__, (2**n for n in count(1))), slots):
        rate = await _closed(service, plan, width, clock)
        say(f"capacity: {width} callers that never pause get {rate:.1f} answers/s")
        if rate <= MORE * best:
            break
        best, filled = rate, width
    if best == 0:
        raise ServiceError(f"the engine answered nothing in {plan.probe:.0f} s; is it so slow?")
    # Once more and longer: the best of several short looks is too good.
    longer = replace(plan, probe=2 * plan.probe)
    return await _closed(service, longer, filled, clock), filled


async def _closed(service: Service, plan: Plan, width: int, clock: Clock) -> float:
    shape = Shape("default", plan.prompt_words, plan.max_tokens, timeout=120.0)
    callers = Callers(service.openai_url, shape, random.Random(plan.seed), clock)
    try:
        return await closed_loop(callers, width, plan.probe, clock)
    finally:
        await callers.close()


def _patient(plan: Plan, capacity: float, width: int) -> Shape:
    """Callers to match the engine: `width` of them wait width / capacity seconds (Little)."""
    timeout = min(plan.stall / 2, max(2.0, plan.patience * width / capacity))
    return Shape("default", plan.prompt_words, plan.max_tokens, timeout=timeout)


async def run_storm(
    plan: Plan, settings: list[str], clock: Clock, say: Say, foreign: Foreign | None = None
) -> Result:
    """Measure capacity, then send the same traffic into the same stall, gate open and shut; or,
    with another maker's engine, straight to it and through the gate.

    Raises ServiceError when the product does not come up.
    """
    if foreign is None:
        return await _run_storm(plan, settings, None, clock, say)
    async with AsyncExitStack() as stack:
        behind = Behind(StoppedProcess(foreign.pid), foreign.url) if foreign.pid else None
        if behind is None:
            behind = Behind(*await stack.enter_async_context(frozen_wire(foreign.url)))
        settings = [*settings, f"backends.0.url={behind.url}"]
        return await _run_storm(plan, settings, behind, clock, say)


async def _run_storm(
    plan: Plan, settings: list[str], behind: Behind | None, clock: Clock, say: Say
) -> Result:
    episodes: dict[str, Episode] = {}
    say("starting the product with its gate wide open")
    async with running([*settings, "gate.enforce=false"]) as service:
        engine = service.engine()
        capacity, width = await _capacity(service, plan, clock, say)
        shape, offered = _patient(plan, capacity, width), plan.load * capacity
        say(f"callers wait {shape.timeout:.1f} s, then retry; {offered:.1f} calls/s are offered")
        if behind is None:
            stall: Stall = StoppedProcess(engine["pid"])
            address, asked = service.openai_url, shape
        else:
            say("straight to the engine")
            stall, address = behind.stall, f"{behind.url}/v1"
            asked = replace(shape, model=engine["model"])
        episodes[UNPROTECTED] = await _episode(
            UNPROTECTED, address, stall, plan, asked, offered, clock, say
        )
    say("starting the product as it ships")
    async with running(settings) as service:
        stall = StoppedProcess(service.engine()["pid"]) if behind is None else behind.stall
        await _closed(service, plan, width, clock)  # it has seen its engine full, too
        episodes[PROTECTED] = await _episode(
            PROTECTED, service.openai_url, stall, plan, shape, offered, clock, say
        )
    verdicts = {
        name: judge(episode, plan.warm_up, shape.timeout) for name, episode in episodes.items()
    }
    name = "" if behind is None else str(engine["version"])
    return Result(name, capacity, offered, shape.timeout, episodes, verdicts)


def as_document(result: Result, plan: Plan, clock: Clock) -> dict[str, Any]:
    """The figures of a run, for documents and machines."""
    day = datetime.fromtimestamp(clock.wall(), UTC).date()
    return {
        "date": day.isoformat(),
        "machine": f"{os.cpu_count()} CPU cores ({platform.machine()})",
        "engine": result.engine,
        "plan": asdict(plan),
        "capacity_calls_per_second": result.capacity,
        "offered_calls_per_second": result.offered,
        "timeout_seconds": result.timeout,
        "verdicts": {name: asdict(verdict) for name, verdict in result.verdicts.items()},
    }


def write_json(document: Mapping[str, Any], path: Path) -> None:
    """Keep the figures in a file; OSError when it can't be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
