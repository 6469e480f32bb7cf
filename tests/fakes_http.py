"""An HTTP door under test with its controls, and a client that sends exactly what it is told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from tests.fakes import FakeDesk

from surgetank.admission.doors.http.routes import Health
from surgetank.admission.doors.http.server import HttpServer
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.vocabulary import Reason


class RawClient:
    """An HTTP/1.1 client that sends exactly the bytes it is told to, right or wrong."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> "RawClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (names in lower case) and body, its chunks joined; within 5 s."""
        async with asyncio.timeout(5):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            body = b""
            if has_body and "transfer-encoding" in headers:
                body = b"".join([chunk async for chunk in self.chunks()])
            elif has_body and "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            return int(lines[0].split(" ")[1]), headers, body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of a chunked body, to its end."""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def eof(self) -> bytes:
        """What comes until the server closes; within 5 s."""
        async with asyncio.timeout(5):
            return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


@dataclass
class Door:
    """The server under test with all that a test turns and reads."""

    server: HttpServer
    desk: FakeDesk
    clock: ManualClock
    health: list[Health]  # the last one counts
    unread: list[Reason]  # of requests that no ticket tells of
    server_loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    clients: list[RawClient] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    async def connect(self) -> RawClient:
        client = await RawClient.connect(self.server.port)
        self.clients.append(client)
        return client

    async def exchange(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send bytes on a connection of their own; the one answer to them."""
        client = await self.connect()
        client.send(data)
        return await client.response()

    async def settle(self) -> None:
        """Until the server has read all that was sent before: a round trip of its own proves it."""
        await self.exchange(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")

    def later(self, seconds: float) -> None:
        """Let time pass, and the server look at its deadlines."""
        self.clock.advance(seconds)
        self.server.sweep()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until something holds; fails after five seconds."""
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - any fact of any object
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await self.server.stop()


OpenDoor = Callable[..., Awaitable[Door]]
