"""An HTTP server whose bytes the test plays: it keeps what it is sent and says what it is told.

Real sockets on loopback, no engine: the bytes are the subject.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

WAIT = 10.0  # seconds that anything here may take before the test fails


@dataclass(eq=False)
class Peer:
    """One connection, as the server has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> tuple[str, dict[str, str], bytes]:
        """The next whole request: its first line, headers and body."""
        async with asyncio.timeout(WAIT):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")[:-2]
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return first, headers, body

    async def say(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        async with asyncio.timeout(WAIT):
            await self.writer.drain()

    async def gone(self) -> bool:
        """Wait until the client hangs up."""
        async with asyncio.timeout(WAIT):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


@dataclass
class PlayedServer:
    """A listening socket; connections are handed out in the order in which they come."""

    url: str = ""
    peers: asyncio.Queue[Peer] = field(default_factory=asyncio.Queue)
    accepted: int = 0

    async def peer(self) -> Peer:
        """The next connection."""
        async with asyncio.timeout(WAIT):
            return await self.peers.get()


@asynccontextmanager
async def played_server() -> AsyncIterator[PlayedServer]:
    """Listens on a free port of the loopback."""
    played = PlayedServer()
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        played.accepted += 1
        writers.append(writer)
        played.peers.put_nowait(Peer(reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    played.url = f"http://127.0.0.1:{port}"
    try:
        yield played
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()
