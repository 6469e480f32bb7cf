"""The memory that streams take which are open and silent."""

import asyncio
from dataclasses import dataclass

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.proxy.client import Connection
from surgetank.control.bench.proxy.side import Side
from surgetank.control.bench.proxy.wire import NEVER, ask
from surgetank.control.openfiles import raise_limit

STREAMS = 10_000
_AT_ONCE = 64
_SPARE = 500  # descriptors for everything else


@dataclass(frozen=True, slots=True)
class Idle:
    """What was seen."""

    streams: int
    bytes: int  # that the sidecar grew by

    @property
    def megabytes(self) -> float:
        """Of STREAMS streams, at this rate."""
        return self.bytes / self.streams * STREAMS / 1e6


async def idle(ours: Side) -> Idle:
    """Open as many streams as the system's limit of open files allows, at most STREAMS, each after
    its first event silent. Raises BenchError."""
    if ours.process is None:
        raise BenchError("there is no process whose memory could be read")
    streams = min(STREAMS, (raise_limit() - _SPARE) // 2)  # a proxy has two ends of each
    before, opened = ours.process.resident(), list[Connection]()
    loop, request = asyncio.get_running_loop(), ask(2, NEVER)
    todo = iter(range(streams))

    async def opener() -> None:
        for _ in todo:
            _, connection = await loop.create_connection(
                Connection, "127.0.0.1", ours.process.port if ours.process else 0
            )
            opened.append(connection)
            answer = await connection.ask(request, only_first=True)
            if not answer.data.startswith(b"HTTP/1.1 200"):
                raise BenchError(f"a stream was not served: {bytes(answer.data[:300])!r}")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(opener())
        await ours.pool.ask(2, 1000)  # it serves on
        return Idle(streams, ours.process.resident() - before)
    finally:
        for connection in opened:
            connection.close()
