"""One simulated Redis, and sidecars that share limits over it by production's own leases."""

import asyncio
import math
import random
from typing import Any

from pydantic import SecretStr

from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.leases.link import LinkError, Script
from surgetank.admission.leases.quotas import Quotas
from surgetank.admission.leases.renewer import Renewer
from surgetank.control.lab.eventloop import VirtualLoop
from surgetank.control.lab.shared_store import SharedStore
from surgetank.control.lab.timeline import Timeline

_TRIP = 0.0005  # seconds, there or back


class SharedState:
    """What the sidecars of one run share."""

    def __init__(self, config: LeasesConfig, timeline: Timeline) -> None:
        address = SecretStr("redis://simulated")  # none at all would mean: nothing is shared
        self._config = config.model_copy(update={"url": address})
        self._timeline = timeline
        self._loop = VirtualLoop(timeline)  # type: ignore[abstract]  # it has no sockets
        self._away_until = -math.inf
        self.store = SharedStore(timeline)

    def join(self, rng: random.Random) -> Quotas:
        """One more sidecar, whose leases are renewed from now on."""
        quotas = Quotas(self._config, self._timeline)
        renewer = Renewer(quotas, self._config, _Line(self), self._timeline, rng)
        self._loop.start(renewer.run())
        return quotas

    @property
    def away(self) -> bool:
        """Nobody gets an answer."""
        return self._timeline.monotonic() < self._away_until

    @property
    def timeout(self) -> float:
        """Seconds after which a sidecar does not wait for an answer any longer."""
        return self._config.timeout

    def lose(self, seconds: float) -> None:
        """No answers for so long; what it knows, it keeps."""
        self._away_until = max(self._away_until, self._timeline.monotonic() + seconds)

    def restart(self, seconds: float) -> None:
        """What it knows is lost, and it is away for so long."""
        self.store.forget()
        self.lose(seconds)

    def close(self) -> None:
        """The run is over."""
        self._loop.close()


class _Line:
    """One sidecar's connection."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    async def run(self, script: Script, keys: list[str], args: list[str | int]) -> Any:
        """A question or its answer that meets no Redis is lost, and its sidecar gives up."""
        await self._travel(_TRIP)
        answer = self._shared.store.run(script, keys, args)
        await self._travel(_TRIP)
        return answer

    async def _travel(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._shared.away:
            await asyncio.sleep(self._shared.timeout)
            raise LinkError("no answer in time")

    async def close(self) -> None:
        """Nothing is open."""
