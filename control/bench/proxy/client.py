"""The bench's clients: kept connections that note when what of an answer came."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import cast

from surgetank.admission.doors.http.body import ChunkedBody
from surgetank.admission.outcome import Refused
from surgetank.control.bench.document import BenchError
from surgetank.control.bench.proxy.wire import ask, is_plain, tokens

_END = b"\r\n0\r\n\r\n"
_LARGEST = 64 * 1024 * 1024
_KEPT = 3.0  # seconds; a uvicorn closes after five
_WITHIN = 60.0  # seconds for an answer that is not to stay open


@dataclass(slots=True)
class Answer:
    """What came back, and when, in monotonic seconds: uvloop's own time has whole milliseconds."""

    begun: float
    first: float = 0.0  # when the first event came; 0.0: none did
    reads: list[float] = field(default_factory=list)  # when each part of it came
    data: bytearray = field(default_factory=bytearray)

    @property
    def whole(self) -> bool:
        """Whether its end has come."""
        head, blank, body = self.data.partition(b"\r\n\r\n")
        if not blank:
            return False
        length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        return len(body) >= int(length) if length else self.data.endswith(_END)

    def check(self, events: int) -> None:
        """Every event, once and in order; BenchError when it is not so."""
        head, _, body = self.data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise BenchError(f"the request was not served: {bytes(self.data[:300])!r}")
        if events == 0:
            if not is_plain(bytes(body)):
                raise BenchError(f"the answer is another: {bytes(body[:300])!r}")
        elif tokens(_dechunked(body)) != list(range(events)):
            raise BenchError(f"events lost or out of order: {bytes(body[:300])!r}")


def _dechunked(body: bytearray) -> bytes:
    chunks = ChunkedBody(_LARGEST)
    try:
        chunks.take(body)
    except Refused as refused:
        raise BenchError(f"the stream's chunks are broken: {refused}") from None
    return bytes(chunks.data)


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._until_first = False

    async def ask(self, request: bytes, *, begun: float = 0.0, only_first: bool = False) -> Answer:
        """Its whole answer, or what there is of it at its first event. `begun`: when it was due,
        if not now. BenchError when the proxy hangs up or takes too long."""
        self.answer = Answer(begun or monotonic())
        self._done, self._until_first = self._loop.create_future(), only_first
        self._transport.write(request)
        return await self._whole(self.answer)

    async def begin(self, request: bytes) -> None:
        """Its first event, and no further: what comes after it is not read."""
        await self.ask(request, only_first=True)
        self._transport.pause_reading()

    async def finish(self) -> Answer:
        """Read on, to the end of what begin() began. BenchError as ask()."""
        if self.answer is None:
            raise BenchError("nothing was begun")
        self._done, self._until_first = self._loop.create_future(), False
        self._transport.resume_reading()
        return await self._whole(self.answer)

    @property
    def fresh(self) -> bool:
        """Whether the other side is sure to keep it still."""
        last = self.answer.reads[-1] if self.answer else monotonic()
        return not self._transport.is_closing() and monotonic() - last < _KEPT

    def close(self) -> None:
        """Hang up."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(BenchError("a proxy hung up amid an answer"))
            self._done.exception()  # looked at, should nobody wait for it

    def data_received(self, data: bytes) -> None:
        answer = self.answer
        if answer is None:
            return
        answer.data += data
        answer.reads.append(now := monotonic())
        if not answer.first and b"data:" in answer.data:
            answer.first = now
        enough = self._until_first if answer.first else False
        may_end = not answer.first or data.endswith(b"\r\n\r\n")  # no event in a chunk ends so
        if (enough or (may_end and answer.whole)) and not self._done.done():
            self._done.set_result(None)

    async def _whole(self, answer: Answer) -> Answer:
        try:
            async with asyncio.timeout(_WITHIN):
                await self._done
        except TimeoutError:
            raise BenchError(f"no whole answer within {_WITHIN:g} s") from None
        return answer


class Pool:
    """Connections to one port, as many as were needed at once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []
        self._all: list[Connection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One that is free; it is not used again when that failed."""
        while self._idle and not self._idle[-1].fresh:
            stale = self._idle.pop()
            stale.close()
            self._all.remove(stale)
        connection = self._idle.pop() if self._idle else await self.connect()
        yield connection
        self._idle.append(connection)

    async def ask(self, events: int, gap: int, *, begun: float = 0.0) -> Answer:
        """One whole, checked answer."""
        async with self.connection() as connection:
            answer = await connection.ask(ask(events, gap), begun=begun)
        answer.check(events)
        return answer

    def close(self) -> None:
        """Hang up everywhere."""
        while self._all:
            self._all.pop().close()
        self._idle.clear()

    async def connect(self, window: int | None = None) -> Connection:
        """A new one, not to be shared; `window`: bytes that its socket holds unread."""
        loop, end = asyncio.get_running_loop(), socket.socket()
        end.setblocking(False)
        if window is not None:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        try:
            await loop.sock_connect(end, ("127.0.0.1", self._port))
            _, connection = await loop.create_connection(Connection, sock=end)
        except OSError:
            end.close()
            raise
        self._all.append(connection)
        return connection
