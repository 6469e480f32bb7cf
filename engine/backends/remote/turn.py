"""What came of answers in one turn of the event loop: passed on together, then counted together."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from surgetank.engine.backends.remote.api import AnswerSink
from surgetank.engine.backends.remote.framing import EventCount, is_chunk
from surgetank.engine.backends.remote.usage import Tail
from surgetank.telemetry.clock import Clock

log = logging.getLogger(__name__)

_LATER = 0.002  # seconds: about as long as it takes to pass on what one step brought

SinkT = TypeVar("SinkT", bound=AnswerSink)
# Hears how many events were written directly at that time, by their sinks, in order.
Spoke = Callable[[Sequence[tuple[SinkT, int]], float], None]


class Passing(Protocol[SinkT]):
    """An answer on its way: upstream.Connection."""

    sink: SinkT | None  # None: nobody wants it any more
    direct: Callable[[bytes], None] | None  # where whole chunks are written now
    events: EventCount
    tail: Tail

    def received(self, data: bytes) -> None:
        """Work off what came."""

    def fail(self, detail: str) -> None:
        """End it; the sink hears that the answer is lost."""


_Plain = tuple[Callable[[bytes], None], Passing[SinkT], bytes]  # how it is written, whose, what


class Turn(Generic[SinkT]):
    """Parts of answers that came in one turn of the event loop, worked off together at its end.

    An engine's step brings one for each stream, nearly always a whole chunk with nothing in its
    way. The system's own work of reading and writing pushes ours out of the processor's caches; so
    first all are looked at, then all are written, and a little later, when the whole step is likely
    to have come, all are counted: the code of each stays there for all but the first.
    """

    def __init__(self, spoke: Spoke[SinkT], clock: Clock) -> None:
        self._spoke = spoke
        self._clock = clock
        self._came: list[tuple[Passing[SinkT], bytes]] = []
        self._written: list[tuple[float, list[_Plain[SinkT]]]] = []  # and when, to be counted

    def add(self, connection: Passing[SinkT], data: bytes) -> None:
        """One more."""
        if not self._came:
            asyncio.get_running_loop().call_soon(self.work)
        self._came.append((connection, data))

    def work(self) -> None:
        """All that came, in order."""
        came, self._came = self._came, []
        plain: list[_Plain[SinkT]] = []
        for connection, data in came:
            write = connection.direct
            if write is not None and is_chunk(data):
                plain.append((write, connection, data))
            else:
                self._write(plain)  # what came before it stays before it
                plain = []
                self._receive(connection, data)
        self._write(plain)

    def count(self) -> None:
        """What was written and not counted."""
        written, self._written = self._written, []
        for at, plain in written:
            spoken: list[tuple[SinkT, int]] = []
            for _, connection, data in plain:
                connection.tail.add(data)
                events = data.count(connection.events.mark)
                if events and connection.sink is not None:
                    spoken.append((connection.sink, events))
            try:
                self._spoke(spoken, at)
            except Exception:
                log.exception("events could not be counted")

    def _receive(self, connection: Passing[SinkT], data: bytes) -> None:
        try:
            connection.received(data)
        except Exception:
            _broke(connection)

    def _write(self, plain: list[_Plain[SinkT]]) -> None:
        if not plain:
            return
        for write, connection, data in plain:
            if connection.sink is None:
                continue  # it ended when another broke: its client may be told other things by now
            try:
                write(data)
            except Exception:
                _broke(connection)
        if not self._written:
            asyncio.get_running_loop().call_later(_LATER, self.count)
        self._written.append((self._clock.monotonic(), plain))


def _broke(connection: Passing[SinkT]) -> None:
    """It ends alone: the others' parts must not be lost with its."""
    log.exception("an answer could not be passed on")
    connection.fail("a fault in the sidecar")
