"""Streams beside clients that do not read: nobody delayed, nothing lost, memory bounded?"""

import asyncio
import statistics
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic
from typing import Protocol

from surgetank.control.bench.proxy.client import Answer, Connection, Pool
from surgetank.control.bench.proxy.wire import AT_ONCE, ask

READERS = 4  # that take their first event and then nothing, while
STREAMS = 32  # others go on
EVENTS = 100
GAP = 10_000  # microseconds between their events
_LONG = 2048  # wide events of an answer that is not read: more than the system's buffers hold
_WINDOW = 32 * 1024  # bytes that a slow reader's own socket takes


@dataclass(frozen=True, slots=True)
class Slow:
    """What was seen. Seconds."""

    alone: float  # p99 of the time between two reads of a stream
    beside: float  # the same beside the slow readers
    bytes: int  # that the proxy grew by for each of them
    caught_up: float  # from the moment when they read on until all have all


class Way(Protocol):
    """Where to ask; side.Side."""

    @property
    def pool(self) -> Pool:
        """Its connections."""

    def resident(self) -> int:
        """Bytes of memory that the proxy has; 0 where there is none."""


async def slow(way: Way) -> Slow:
    """All answers are checked: BenchError when an event is lost or out of order."""
    alone = await _worst_gap(way.pool)
    before, readers = way.resident(), list[Connection]()
    try:
        for _ in range(READERS):
            readers.append(await way.pool.connect(_WINDOW))
            await readers[-1].begin(ask(_LONG, AT_ONCE))
        beside = await _worst_gap(way.pool)
        grown = way.resident() - before
        resumed = monotonic()
        answers = await asyncio.gather(*(reader.finish() for reader in readers))
        caught_up = monotonic() - resumed
    finally:
        for reader in readers:
            reader.close()
    for answer in answers:
        answer.check(_LONG)
    return Slow(alone, beside, max(0, grown) // READERS, caught_up)


async def _worst_gap(pool: Pool) -> float:
    answers = await asyncio.gather(*(pool.ask(EVENTS, GAP) for _ in range(STREAMS)))
    return statistics.quantiles([gap for answer in answers for gap in _gaps(answer)], n=100)[98]


def _gaps(answer: Answer) -> list[float]:
    return [after - before for before, after in pairwise(answer.reads)]
