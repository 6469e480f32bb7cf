"""How an engine is stopped for some seconds: its processes, or the bytes between it and us."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

_CHUNK = 65_536


class Stall(Protocol):
    """Stops an engine, and lets it go on."""

    name: str  # what is stopped, in a few words

    def begin(self) -> None:
        """Stop it. Raises OSError."""

    def end(self) -> None:
        """Let it go on."""


class StoppedProcess:
    """SIGSTOP for a process and all that descend from it: some engines are several."""

    def __init__(self, pid: int) -> None:
        self.name = f"process {pid}"
        self._pid = pid
        self._stopped: list[int] = []

    def begin(self) -> None:
        """Raises ProcessLookupError or PermissionError."""
        for pid in (self._pid, *descendants(self._pid)):
            os.kill(pid, signal.SIGSTOP)
            self._stopped.append(pid)

    def end(self) -> None:
        """In reverse, so that nobody misses a child."""
        while self._stopped:
            os.kill(self._stopped.pop(), signal.SIGCONT)


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, as /proc tells."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):  # it ended just now
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, pending = list[int](), [pid]
    while pending:
        more = children.get(pending.pop(), [])
        found += more
        pending += more
    return found


class FrozenWire:
    """A TCP relay before an engine whose process cannot be stopped: while it is frozen, connections
    are accepted and no byte passes."""

    name = "the wire to it"

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Freeze."""
        self._flows.clear()

    def end(self) -> None:
        """Thaw."""
        self._flows.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: bytes both ways until either side ends."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
            ends.append(back)
            ways = [self._pass(reader, back), self._pass(there, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:  # to the client this looks as if it had asked the engine itself
            return
        finally:
            for end in ends:
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:  # that side has hung up; serve() closes the other
            return


@asynccontextmanager
async def frozen_wire(url: str) -> AsyncIterator[tuple[FrozenWire, str]]:
    """A relay to the engine at `url`, and the address to reach the engine by it."""
    parts = urlsplit(url)
    wire = FrozenWire(parts.hostname or "", parts.port or 80)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield wire, f"http://127.0.0.1:{port}{parts.path}"
    finally:
        server.close()
        await wire.close()
        await server.wait_closed()
