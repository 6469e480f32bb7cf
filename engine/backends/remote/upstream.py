"""Connections to an engine's HTTP address: requests out, answers spliced through, then reused."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Generic, cast
from urllib.parse import urlsplit

import httptools

from surgetank.engine.backends.remote.api import AnswerHead, Forward, Usage
from surgetank.engine.backends.remote.framing import (
    Chunked,
    EventCount,
    Framing,
    FramingError,
    Sized,
    UntilClose,
)
from surgetank.engine.backends.remote.turn import SinkT, Spoke, Turn
from surgetank.engine.backends.remote.usage import Tail
from surgetank.telemetry.clock import Clock

log = logging.getLogger(__name__)


_LARGEST_HEAD = 65_536
_KEPT_IDLE = 50.0  # seconds; an engine that keeps them for less closes them, and is believed
_SMALL = 8192  # bytes; of larger parts much may come in one turn, and whoever is slow must stop it
_CONNECT = 2.0  # seconds for a connection to be made
_KEYS = frozenset({"authorization", "x-api-key"})  # what a client proves itself by


class _HeadEvents:
    """What the parser tells of an answer's head."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.complete = True


def parse_answer_head(data: bytes) -> tuple[AnswerHead, bool]:
    """A whole head, its blank line included, and whether the connection may be kept after it.
    Raises FramingError."""
    events = _HeadEvents()
    parser = httptools.HttpResponseParser(events)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        raise FramingError("the engine wants to speak another protocol") from None
    except httptools.HttpParserError as error:
        raise FramingError(f"malformed answer: {error}") from None
    if not events.complete:
        raise FramingError("malformed answer: incomplete headers")
    head = AnswerHead(parser.get_status_code(), tuple(events.headers))
    closes = "close" in head.header("connection").lower()
    return head, parser.get_http_version() == "1.1" and not closes


def framing_of(head: AnswerHead) -> Framing:
    """How the body that follows is framed. Raises FramingError."""
    if head.status in (204, 304):
        return Sized(0)
    coding, length = head.header("transfer-encoding").lower(), head.header("content-length")
    if coding:
        if coding != "chunked" or length:
            raise FramingError(f"transfer-encoding {coding!r} cannot be followed")
        return Chunked()
    if not length:
        return UntilClose()
    if not length.isascii() or not length.isdigit():
        raise FramingError(f"content-length {length!r} is no number")
    return Sized(int(length))


class Connection(asyncio.Protocol, Generic[SinkT]):
    """One connection, one request at a time."""

    __slots__ = (
        "_buffer",
        "_framing",
        "_keep",
        "_message",
        "_on_free",
        "_on_lost",
        "_transport",
        "_turn",
        "direct",
        "events",
        "freed_at",
        "heard",
        "sink",
        "tail",
        "used",
    )

    def __init__(
        self,
        turn: Turn[SinkT],
        on_free: "Callable[[Connection[SinkT]], None]",
        on_lost: "Callable[[Connection[SinkT]], None]",
        message: Callable[[Forward], bytes],
    ) -> None:
        """`message`: a request as it goes over the wire."""
        self.used = False  # a request was answered on it before
        self.freed_at = 0.0
        self.heard = False  # of the running request, anything has come back
        self.sink: SinkT | None = None
        self.events = EventCount()
        self.tail = Tail()
        self.direct: Callable[[bytes], None] | None = None  # where whole chunks are written now
        self._turn = turn
        self._on_free = on_free
        self._on_lost = on_lost
        self._message = message
        self._buffer = b""  # of a head that is not complete
        self._framing: Framing | None = None  # None: the head is still to come
        self._keep = False

    def send(self, request: Forward, sink: SinkT) -> None:
        """Begin a request."""
        self.sink, self.heard = sink, False
        self._buffer, self._framing = b"", None
        self.events, self.tail = EventCount(request.path), Tail()
        self._transport.write(self._message(request))

    def hold(self, held: bool) -> None:
        """Stop reading, or go on."""
        self.direct = None
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def hang_up(self) -> None:
        """End it; a sink that is left hears nothing more."""
        self._let_go()
        self._transport.abort()

    @property
    def alive(self) -> bool:
        """Whether another request may be sent on it."""
        return not self._transport.is_closing()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's: no isinstance here.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._framing is None:
            self.received(data)
        elif len(data) <= _SMALL:
            self._turn.add(self, data)
        else:
            self._turn.work()
            self.received(data)

    def received(self, data: bytes) -> None:
        """Work off what came."""
        self._turn.count()
        if self.sink is None:  # unasked-for bytes: nothing after them can be trusted
            self.hang_up()
            return
        try:
            if self._framing is None:
                data = self._read_head(data)
            sink, framing = self.sink, self._framing
            if sink is None or framing is None:
                return
            taken = framing.take(data)
            if taken < len(data):  # nothing after it can be trusted
                data, self._keep = data[:taken], False
            if data:
                self.tail.add(data)
                sink.on_data(data, self.events.count(data), framing.between)
            if framing.complete:
                self._finish()
            elif self.sink is not None:
                self.direct = sink.direct() if framing.between else None
        except FramingError as error:
            self.fail(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._turn.work()
        self._on_lost(self)
        if isinstance(self._framing, UntilClose) and exc is None:
            self._finish()
        else:
            self.fail(str(exc) if exc else "the engine hung up")

    # inside

    def _read_head(self, data: bytes) -> bytes:
        """Returns what follows the head, once it is whole."""
        self.heard = True
        data = self._buffer + data
        while (end := data.find(b"\r\n\r\n") + 4) >= 4:
            head, keep = parse_answer_head(data[:end])
            data = data[end:]
            if head.status < 200:  # 100 Continue and its like announce the real answer
                continue
            self._buffer, self._framing, self._keep = b"", framing_of(head), keep
            if self.sink is not None:
                self.sink.on_head(head)
            return data
        if len(data) > _LARGEST_HEAD:
            raise FramingError(f"the answer's headers exceed {_LARGEST_HEAD} bytes")
        self._buffer = data
        return b""

    def told(self) -> Usage | None:
        """What its stream says of itself, once its last event has come; None: it goes on."""
        self._turn.count()
        return self.tail.usage() if self.tail.says_done() else None

    def _finish(self) -> None:
        sink = self._let_go()
        if self._keep and self.alive:
            self.used = True
            self._transport.resume_reading()  # its last part may have met a slow client
            self._on_free(self)
        else:
            self._transport.close()
        if sink is not None:
            sink.on_done(self.tail.usage())

    def fail(self, detail: str) -> None:
        """End it; the sink hears that the answer is lost."""
        sink = self._let_go()
        self._transport.abort()
        if sink is not None:
            sink.on_lost(detail)

    def _let_go(self) -> SinkT | None:
        self._turn.count()
        sink = self.sink
        self.sink = self.direct = self._framing = None
        return sink


def unreachable(error: OSError) -> str:
    """Why nobody could be connected to, in words that tell no address."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror | ssl.SSLError) or error.errno is None:
        return "no connection"
    return os.strerror(error.errno).lower()


class Upstream(Generic[SinkT]):
    """All connections to one address. Belongs to one event loop."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        spoke: Spoke[SinkT],
        headers: tuple[tuple[str, str], ...] = (),
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        """`headers` go with every request: the engine's own credentials, in place of clients'.
        `server_name`: whose certificate it must have, None: that of the address's host."""
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls, self._server_name = tls, server_name
        self._port = parts.port or (443 if tls else 80)
        self._path = parts.path.rstrip("/")
        self._keeps = _KEYS if headers else frozenset()  # of a request's headers, for us alone
        self._lines = _lines([("host", parts.netloc.rpartition("@")[2]), *headers])
        self._clock = clock
        self._turn = Turn(spoke, clock)
        self._idle: dict[Connection[SinkT], None] = {}  # the one used last comes last

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    async def connect(self) -> Connection[SinkT]:
        """A new connection. Raises OSError, TimeoutError among them."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT):
            _, connection = await loop.create_connection(
                lambda: Connection(self._turn, self._free, self._lost, self._message),
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self._server_name,
            )
        return connection

    def take(self) -> Connection[SinkT] | None:
        """An idle connection, the one used last; None: connect()."""
        oldest = self._clock.monotonic() - _KEPT_IDLE
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.alive and connection.freed_at >= oldest:
                return connection
            connection.hang_up()
        return None

    def _message(self, request: Forward) -> bytes:
        version = "1.0" if request.http_1_0 else "1.1"
        length, passed = [("content-length", str(len(request.body)))], request.headers
        if self._keeps:
            passed = tuple(pair for pair in passed if pair[0] not in self._keeps)
        first = f"POST {self._path}{request.path} HTTP/{version}\r\n"
        head = first + self._lines + _lines([*passed, *length]) + "\r\n"
        return head.encode("latin-1") + request.body

    def close(self) -> None:
        """Hang up what is idle; what the others have passed on is counted."""
        self._turn.count()
        while self._idle:
            self._idle.popitem()[0].hang_up()

    def _free(self, connection: Connection[SinkT]) -> None:
        connection.freed_at = self._clock.monotonic()
        self._idle[connection] = None

    def _lost(self, connection: Connection[SinkT]) -> None:
        self._idle.pop(connection, None)


def _lines(headers: list[tuple[str, str]]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers])
