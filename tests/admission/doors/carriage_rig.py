"""A desk before an engine that somebody else's proxy reaches; nothing is sent anywhere."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.engine.backends.remote.rig import PlayedProbe, Seen

from surgetank.admission.desk import AnyDesk, FrontDesk
from surgetank.admission.doors.carried import Carriage
from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.leases.quotas import Quotas
from surgetank.admission.outcome import Refusal
from surgetank.admission.relay import RelayAdapter, RelayEngine
from surgetank.engine.backends.remote.api import Forward
from surgetank.engine.backends.remote.backend import RemoteBackend
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.vocabulary import Outcome, Reason

URL = "http://10.0.0.7:8000"


@dataclass
class CarriageRig:
    """The desk and what its doors share."""

    desk: AnyDesk
    carriage: Carriage
    clock: ManualClock
    backend: RemoteBackend

    @property
    def dispatched(self) -> int:
        return self.desk.snapshot().dispatched

    def ended(self) -> list[tuple[Outcome | None, Reason]]:
        return [(each.ticket.outcome, each.ticket.reason) for each in self.desk.recent()]


@dataclass
class KeepingDoor:
    """Implements carried.CarrierDoor: keeps what it hears."""

    went: list[tuple[str, Forward]] = field(default_factory=list)
    over: list[Refusal | None] = field(default_factory=list)

    def on_go(self, url: str, request: Forward) -> None:
        self.went.append((url, request))

    def on_over(self, refusal: Refusal | None) -> None:
        self.over.append(refusal)


@asynccontextmanager
async def carriage_rig(leases: LeasesConfig | None = None) -> AsyncIterator[CarriageRig]:
    """One slot, a queue of one, and an engine that is there."""
    clock, rng = ManualClock(), random.Random(1)
    backend = RemoteBackend(BackendConfig(url=URL), clock, PlayedProbe(), look_every=0.001)
    adapter = RelayAdapter(RelayEngine(backend))
    desk: AnyDesk = FrontDesk(
        adapter=adapter,
        recorder=Recorder(Registry(Process.SIDECAR)),
        clock=clock,
        rng=rng,
        call_later=asyncio.get_running_loop().call_later,
        config=GateConfig(in_flight_seqs=1, queue_requests=1),
        quotas=Quotas(leases or LeasesConfig(), clock),
    )
    seen = Seen()
    backend.watch(desk.engines.watchers[0])
    backend.watch(seen)
    backend.start()
    await seen.until(1)
    yield CarriageRig(desk, Carriage(desk, adapter.sizes, 16), clock, backend)
    await backend.aclose()
