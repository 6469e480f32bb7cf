"""A remote backend before a played server: what it finds, what it is sent, what its sinks hear."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.engine.backends.remote.played_server import WAIT, PlayedServer, played_server
from tests.fakes import tiny_card

from surgetank.engine.api import ModelCard, StepOutput
from surgetank.engine.backends.remote.api import AnswerHead, Forward, Usage
from surgetank.engine.backends.remote.backend import RemoteBackend
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.found import Found, Look, NobodyListens, NotFound, Signals
from surgetank.telemetry.clock import ManualClock

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: {}\n\r\n"
END = b"0\r\n\r\n"


class Answer:
    """A sink that keeps all it hears."""

    def __init__(self) -> None:
        self.head: AnswerHead | None = None
        self.data = b""
        self.events = 0
        self.usage: Usage | None = None
        self.lost: str | None = None
        self.begun = False  # of a lost one: the engine may have worked on it
        self.changed = asyncio.Event()

    def on_head(self, head: AnswerHead) -> None:
        self.head = head
        self.changed.set()

    def on_data(self, data: bytes, events: int, between: bool) -> None:
        self.data += data
        self.events += events
        self.changed.set()

    def direct(self) -> None:
        """Never."""

    def on_events(self, events: int, now: float) -> None:
        raise AssertionError("nothing is written past it")

    def on_done(self, usage: Usage) -> None:
        assert self.usage is None
        assert self.lost is None
        self.usage = usage
        self.changed.set()

    def on_lost(self, detail: str, begun: bool = True) -> None:
        assert self.usage is None
        assert self.lost is None
        self.lost, self.begun = detail, begun
        self.changed.set()

    async def until(self, condition: Callable[["Answer"], object]) -> None:
        async with asyncio.timeout(WAIT):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


class Seen:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[StepOutput] = []
        self.told: list[str] = []
        self.changed = asyncio.Event()

    def on_step(self, output: StepOutput) -> None:
        self.steps.append(output)

    def on_up(self, card: ModelCard) -> None:
        self.told.append("up")
        self.changed.set()

    def on_down(self, detail: str) -> None:
        self.told.append(detail)
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT):
            while len(self.told) < count:
                self.changed.clear()
                await self.changed.wait()


class PlayedProbe:
    """Finds what it is told to find; each look takes one turn of the loop."""

    def __init__(self) -> None:
        self.there = True
        self.deaf = False  # there, but too busy for a look
        self.model = "m"
        self.ignores: tuple[str, ...] = ()
        self.fault: Exception | None = None  # of ours, when it is looked at
        self.listens = True  # else connections are refused
        self.signals = Signals()
        self.models: tuple[str, ...] | None = None  # that it lists at a look; None: it does not
        self.began: float | None = None
        self.looks = 0
        self.looked = asyncio.Event()

    async def find(self) -> Found:
        if not self.listens:
            raise NobodyListens("connection refused")
        if not self.there:
            raise NotFound("nobody answers")
        card = tiny_card(name=self.model, kv_blocks=0, max_num_seqs=4, max_batch_tokens=64)
        names = (self.model, "lora")
        return Found("vllm", "1", card, names, ("running",), ignores=self.ignores)

    async def look(self, found: Found) -> Look:
        self.looks += 1
        self.looked.set()
        if self.fault is not None:
            raise self.fault
        if not self.listens:
            raise NobodyListens("connection refused")
        if not self.there or self.deaf:
            raise NotFound("nobody answers")
        return Look(self.signals, self.models, self.began)

    async def after(self, looks: int) -> None:
        """Until it was looked at so many times more, and what was seen is known."""
        async with asyncio.timeout(WAIT):
            wanted = self.looks + looks + 1
            while self.looks < wanted:
                self.looked.clear()
                await self.looked.wait()

    async def aclose(self) -> None:
        """Nothing is open."""


class Rig:
    """A backend before a played server."""

    def __init__(self, server: PlayedServer) -> None:
        self.clock = ManualClock()
        self.probe = PlayedProbe()
        self.seen = Seen()
        self.server = server
        self.backend = RemoteBackend(
            BackendConfig(url=f"{server.url}/base", api_key="secret"),
            self.clock,
            self.probe,
            look_every=0.001,
        )
        self.backend.watch(self.seen)
        self._ids = iter(range(1, 100))

    def send(
        self,
        body: bytes = b"{}",
        *,
        stream: bool = True,
        http_1_0: bool = False,
        seqs: int = 1,
    ) -> Answer:
        self.last, answer = next(self._ids), Answer()
        headers = (("content-type", "application/json"),)
        forward = Forward("/v1/x", headers, body, 10, stream, http_1_0, seqs)
        self.backend.forward(self.last, forward, answer)
        return answer


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    async with played_server() as server:
        rig = Rig(server)
        rig.backend.start()
        await rig.seen.until(1)
        try:
            yield rig
        finally:
            await rig.backend.aclose()
