"""The HTTP door before an engine of another maker: its clients, and the engine as played."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.engine.backends.remote.played_server import WAIT, PlayedServer, played_server
from tests.engine.backends.remote.rig import PlayedProbe, Seen
from tests.fakes_http import RawClient

from surgetank.admission.desk import AnyDesk, FrontDesk
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.relay_routes import RelayRoutes
from surgetank.admission.doors.http.routes import Health
from surgetank.admission.doors.http.server import HttpServer
from surgetank.admission.gate import GateConfig
from surgetank.admission.relay import RelayAdapter, RelayEngine
from surgetank.admission.tenants import Tenants
from surgetank.engine.backends.remote.backend import RemoteBackend
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.vocabulary import Outcome, Reason

PLAIN_BODY = (
    b'{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, '
    b'"prompt_tokens_details": {"cached_tokens": 3}}}'
)
WHOLE = b"HTTP/1.1 200 OK\r\nx-own: 1\r\ncontent-length: %d\r\n\r\n%b"
PLAIN = WHOLE % (len(PLAIN_BODY), PLAIN_BODY)


class Telling(Recorder):
    """Lets a test wait for a request's end."""

    def __init__(self) -> None:
        super().__init__(Registry(Process.SIDECAR))
        self.changed = asyncio.Event()

    def ended(self, **facts: Any) -> None:
        super().ended(**facts)
        self.changed.set()


@dataclass
class Relayed:
    """Client side and engine side of one sidecar."""

    engine: PlayedServer
    desk: AnyDesk
    door: HttpServer
    probe: PlayedProbe
    clock: ManualClock
    recorder: Telling
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self) -> RawClient:
        self.clients.append(await RawClient.connect(self.door.port))
        return self.clients[-1]

    async def ask(self, *, headers: str = "", version: str = "1.1", **fields: Any) -> RawClient:
        """Send a request; fields of its body besides the model."""
        client = await self.connect()
        client.send(post({"model": "m", **fields}, headers, version))
        return client

    async def settle(self) -> None:
        """Until all that was sent before was read: a round trip of its own proves it."""
        client = await self.connect()
        client.send(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await client.response()

    async def ended(self, count: int = 1) -> list[tuple[Outcome | None, Reason]]:
        """Outcomes, once there are so many."""
        async with asyncio.timeout(WAIT):
            while len(self.desk.recent()) < count:
                self.recorder.changed.clear()
                await self.recorder.changed.wait()
        return [(each.ticket.outcome, each.ticket.reason) for each in self.desk.recent()]


def post(body: dict[str, Any], headers: str = "", version: str = "1.1") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/{version}\r\nhost: x\r\n{headers}"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


@asynccontextmanager
async def relaying(
    *,
    told: bool = False,
    ignores: tuple[str, ...] = (),
    tenants: Tenants | None = None,
    **gate: Any,
) -> AsyncIterator[Relayed]:
    """`told`: the engine is told of classes; `ignores`: fields that it passes over."""
    clock, rng = ManualClock(), random.Random(1)
    async with played_server() as engine:
        config = BackendConfig(url=engine.url)
        probe, seen = PlayedProbe(), Seen()
        probe.ignores = ignores
        backend = RemoteBackend(config, clock, probe, look_every=0.001)
        adapter = RelayAdapter(RelayEngine(backend, pass_priority=told))
        recorder = Telling()
        desk: AnyDesk = FrontDesk(
            adapter=adapter,
            recorder=recorder,
            clock=clock,
            rng=rng,
            call_later=asyncio.get_running_loop().call_later,
            config=GateConfig(**{"in_flight_seqs": 2, **gate}),
            tenants=tenants,
        )
        backend.watch(desk.engines.watchers[0])
        backend.watch(seen)
        http = HttpConfig(port=0, write_buffer_bytes=4096)
        door = HttpServer(
            http,
            desk,
            RelayRoutes(http, desk, adapter.sizes, clock),
            health=lambda: Health(True, True),
            metrics=lambda accept: lambda: (b"", "text/plain"),
            clock=clock,
            rng=rng,
        )
        backend.start()
        await seen.until(1)
        await door.start()
        relayed = Relayed(engine, desk, door, probe, clock, recorder)
        yield relayed
        for client in relayed.clients:
            client.close()
        await door.stop()
        await backend.aclose()
