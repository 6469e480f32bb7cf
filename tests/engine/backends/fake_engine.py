"""The engine's end of the link, over a real unix socket, played by a test."""

import asyncio
import random
from pathlib import Path

from tests.fakes import tiny_card

from surgetank.engine.api import (
    PROTOCOL,
    Commands,
    GenerateRequest,
    Hello,
    ModelCard,
    SamplingParams,
    Started,
    StepOutput,
    Tokens,
)
from surgetank.engine.backends.embedded import EmbeddedBackend
from surgetank.engine.wire import FrameReader, decode_commands, encode
from surgetank.telemetry.clock import SystemClock
from surgetank.telemetry.vocabulary import Move


class FakeEngine:
    """Accepts one sidecar at a time, says hello, keeps every message, sends what it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: asyncio.Queue[Commands] = asyncio.Queue()
        self.connections: asyncio.Queue[None] = asyncio.Queue()  # one entry for each that came
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._hello = b""
        self._reading = asyncio.Event()
        self._reading.set()

    async def start(self, card: ModelCard | None = None, protocol: int = PROTOCOL) -> None:
        self._hello = encode(Hello(protocol, card or tiny_card()))
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """Die, taking the connection along."""
        if self._server is not None:
            self._server.close()
            if self._writer is not None:
                self._writer.close()
            await self._server.wait_closed()
        self._server = self._writer = None
        self.path.unlink(missing_ok=True)

    def freeze(self) -> None:
        """Read nothing more, as a stopped process does."""
        self._reading.clear()

    def thaw(self) -> None:
        self._reading.set()

    def send(self, output: StepOutput) -> None:
        self.send_raw(encode(output))

    def send_raw(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    async def message(self) -> Commands:
        return await asyncio.wait_for(self.messages.get(), 5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.put_nowait(None)
        self._writer = writer
        writer.write(self._hello)
        frames = FrameReader()
        while True:
            await self._reading.wait()
            try:
                data = await reader.read(65536)
            except ConnectionError:
                break
            if not data:
                break
            for body in frames.feed(data):
                self.messages.put_nowait(decode_commands(body))
        writer.close()


class Log:
    """A watcher and a sink that remember what they hear, in one order."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._changed = asyncio.Event()

    def note(self, what: str) -> None:
        self.heard.append(what)
        self._changed.set()

    async def wait_for(self, what: str, times: int = 1) -> None:
        """Until it was heard so often; fails after five seconds."""
        async with asyncio.timeout(5):
            while self.heard.count(what) < times:
                self._changed.clear()
                await self._changed.wait()

    def on_up(self, card: ModelCard) -> None:
        self.note(f"up {card.name}")

    def on_down(self, detail: str) -> None:
        self.note("down")

    def on_step(self, output: StepOutput) -> None:
        self.note("step")

    def sink(self, name: str) -> "LogSink":
        return LogSink(self, name)


class LogSink:
    """One request's sink, writing to a log."""

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self._name = name

    def on_started(self, started: Started) -> None:
        self._log.note(f"{self._name} started")

    def on_moved(self, what: Move) -> None:
        self._log.note(f"{self._name} {what}")

    def on_tokens(self, tokens: Tokens) -> None:
        end = f" {tokens.finish}" if tokens.finish else ""
        self._log.note(f"{self._name}.{tokens.index} {tokens.token_ids}{end}")

    def on_lost(self, detail: str) -> None:
        self._log.note(f"{self._name} lost")


def request(request_id: int, n: int = 1, prompt: int = 3) -> GenerateRequest:
    """A small request."""
    sampling = SamplingParams(max_tokens=8)
    return GenerateRequest(request_id=request_id, prompt=[1] * prompt, sampling=sampling, n=n)


def backend_at(path: Path, log: Log) -> EmbeddedBackend:
    """A backend that is started and watched by `log`."""
    backend = EmbeddedBackend(path, SystemClock(), random.Random(1))
    backend.watch(log)
    backend.start()
    return backend
