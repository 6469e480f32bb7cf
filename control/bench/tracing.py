"""`surgetank bench tracing`: what traces cost a request, most of all when the collector is silent.

Three sidecars run side by side before engines that answer after a fixed time: one without traces,
one whose collector accepts and never answers, one whose collector takes everything. All requests
are traced. Each moment that brings a request brings one to each of them, in random order, so that
the machine's moods hit all alike.
"""

import asyncio
import json
import os
import random
import socket
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surgetank.control.bench.decisions import small_card
from surgetank.control.bench.document import BenchError, Table, document
from surgetank.engine.api import PROTOCOL, Commands, Hello, Started, StepOutput, Tokens
from surgetank.engine.wire import FrameReader, decode_commands, encode
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import FinishReason

FIRST, WHOLE = 0.01, 0.03  # seconds until an answer's first token, and its last
GOAL = 0.05  # of the p99
QUEUE = 256  # finished requests; soon full where nobody takes them
OFF, SILENT, TAKING = "no traces", "a silent collector", "a collector that takes all"
_COUNTERS = ("trace_spans_exported_total", "trace_spans_dropped_total")
_ASK = b'{"model": "default", "prompt": "Why do rivers flood?", "max_tokens": 4}'


class _Engine(asyncio.Protocol):
    """Says hello, and answers every request after the same time."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._send: Callable[[bytes], None] = transport.write  # type: ignore[attr-defined]
        self._send(encode(Hello(PROTOCOL, small_card())))

    def data_received(self, data: bytes) -> None:
        for commands in map(decode_commands, self._reader.feed(data)):
            self._answer(commands)

    def _answer(self, commands: Commands) -> None:
        for request in commands.submit:
            number = request.request_id
            first = Tokens(number, 0, [65])
            rest = Tokens(number, 0, [65] * 3, None, FinishReason.LENGTH)
            begin = StepOutput([first], [Started(number, 0)], None)
            self._loop.call_later(FIRST, self._send, encode(begin))
            self._loop.call_later(WHOLE, self._send, encode(StepOutput([rest], [], None)))


@dataclass(slots=True)
class Side:
    """One sidecar, how it is reached, and how long each of its answers took."""

    name: str
    port: int
    slices: list[list[float]] = field(default_factory=list)
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def ask(self, begun: float) -> None:
        """One request that was due at `begun`; BenchError when it is not served."""
        head = (
            "POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            f"content-length: {len(_ASK)}\r\n\r\n"
        )
        reply, _ = await self._exchange(head.encode() + _ASK)
        if reply.split(b" ", 2)[1] != b"200":
            raise BenchError(f"{self.name}: the request was not served: {reply.decode()[:200]}")
        self.slices[-1].append(asyncio.get_running_loop().time() - begun)

    async def counters(self) -> dict[str, int]:
        """What became of the spans."""
        _, page = await self._exchange(b"GET /metrics HTTP/1.1\r\nhost: bench\r\n\r\n")
        found = dict.fromkeys(_COUNTERS, 0)
        for line in page.decode().splitlines():
            for name in _COUNTERS:
                if line.startswith(f"surgetank_{name}"):
                    found[name] += int(float(line.rpartition(" ")[2]))
        return found

    def p(self, percent: int) -> list[float]:
        """Of each slice's answers, seconds."""
        return [statistics.quantiles(slice, n=100)[percent - 1] for slice in self.slices]

    async def _exchange(self, request: bytes) -> tuple[bytes, bytes]:
        """Head and body of the answer, over a connection that is kept."""
        if self.idle:
            reader, writer = self.idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        self.idle.append((reader, writer))
        return head, body


@asynccontextmanager
async def _sidecar(name: str, folder: Path, settings: Sequence[str]) -> AsyncIterator[Side]:
    """A real sidecar before an engine of our own; stopped on leaving."""
    path = str(folder / "engine.sock")
    engine = await asyncio.get_running_loop().create_unix_server(_Engine, path)
    every = [
        *("http.port=0", "grpc.port=0", "admin.port=0", "log.level=error"),
        f"engine.socket={path}",
        f"control.journal={folder / 'journal.jsonl'}",
        *settings,
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "surgetank", "sidecar", *(f"--set={each}" for each in every)),
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
    )
    try:
        line = await process.stdout.readline() if process.stdout else b""
        if not line:
            raise BenchError(f"{name}: the sidecar did not start")
        url: str = json.loads(line)["listeners"]["http"]
        side = Side(name, int(url.rpartition(":")[2]))
        await _until_ready(side)
        yield side
        for _, writer in side.idle:
            writer.close()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        engine.close()


async def _until_ready(side: Side) -> None:
    for _ in range(600):
        head, _ = await side._exchange(b"GET /health/ready HTTP/1.1\r\nhost: bench\r\n\r\n")
        if b" 200 " in head.splitlines()[0]:
            return
        await asyncio.sleep(0.05)
    raise BenchError(f"{side.name}: the sidecar never became ready")


async def _take_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A collector that says yes to each export of a connection, until it ends."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    except asyncio.IncompleteReadError:  # it hung up: that is how a sidecar leaves
        writer.close()


async def _slice(sides: Sequence[Side], rate: float, seconds: float, rng: random.Random) -> None:
    """Requests at random moments for so long, whatever becomes of those before; then all end."""
    loop = asyncio.get_running_loop()
    for side in sides:
        side.slices.append([])
    due, until = loop.time(), loop.time() + seconds
    async with asyncio.TaskGroup() as group:
        while (due := due + rng.expovariate(rate)) < until:
            await asyncio.sleep(max(0.0, due - loop.time()))
            for side in rng.sample(sides, len(sides)):
                group.create_task(side.ask(due))


async def _measure(
    rate: float, rounds: int, seconds: float, say: Callable[[str], None]
) -> tuple[list[Side], dict[str, dict[str, int]]]:
    async with AsyncExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        taking = await asyncio.start_server(_take_all, "127.0.0.1", 0)
        stack.push_async_callback(taking.wait_closed)
        stack.callback(taking.close)
        ports = {
            SILENT: silent.getsockname()[1],
            TAKING: taking.sockets[0].getsockname()[1],
        }
        sides = []
        for name in (OFF, SILENT, TAKING):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="surgetank-")))
            tracing = [f"tracing.queue={QUEUE}", "tracing.sample=1"]
            if name in ports:
                tracing.append(f"tracing.endpoint=http://127.0.0.1:{ports[name]}")
            sides.append(await stack.enter_async_context(_sidecar(name, folder, tracing)))
        rng = random.Random(1)
        await _slice(sides, rate, 1.5 * QUEUE / rate, rng)  # until the silent one's queue is full
        for side in sides:
            side.slices.clear()
        for number in range(rounds):
            say(f"slice {number + 1} of {rounds}")
            await _slice(sides, rate, seconds, rng)
        return sides, {side.name: await side.counters() for side in sides}


def trace(
    rate: float, rounds: int, seconds: float, clock: Clock, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure all three; `rate` per second, `seconds` a slice. Raises BenchError."""
    sides, counters = asyncio.run(_measure(rate, rounds, seconds, say))
    off = sides[0]
    rows: list[dict[str, Any]] = [
        {
            "collector": side.name,
            "requests": sum(map(len, side.slices)),
            "p50_seconds": round(statistics.median(side.p(50)), 6),
            "p99_seconds": round(statistics.median(side.p(99)), 6),
            "p99_change": round(_change(side, off), 4),
            "spans_exported": counters[side.name]["trace_spans_exported_total"],
            "spans_dropped": counters[side.name]["trace_spans_dropped_total"],
        }
        for side in sides
    ]
    change = rows[1]["p99_change"]
    figures = {"rows": rows, "goal": GOAL, "holds": change < GOAL}
    settings = {"requests a second": rate, "slices each": rounds, "seconds a slice": seconds}
    notes = [f"p99 with a silent collector: {change:+.1%} (goal: less than {GOAL:+.0%})"]
    return document("tracing", clock, settings, figures, [_table(rows)], notes)


def _change(side: Side, off: Side) -> float:
    """Of the p99, slice by slice beside the one without traces; the median of those, because what
    else the machine does in one slice must not decide."""
    return statistics.median(ours / bare for ours, bare in zip(side.p(99), off.p(99))) - 1


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ["collector", "requests", "p50 ms", "p99 ms", "p99 change", "exported", "dropped"]
    cells = [
        [
            row["collector"],
            f"{row['requests']:,}",
            f"{row['p50_seconds'] * 1e3:.2f}",
            f"{row['p99_seconds'] * 1e3:.2f}",
            f"{row['p99_change']:+.1%}",
            f"{row['spans_exported']:,}",
            f"{row['spans_dropped']:,}",
        ]
        for row in rows
    ]
    return Table(title="Latency of a request, every one traced", columns=columns, rows=cells)
