"""This sidecar among others: keeps its shares and what all have agreed on current, and shows both.

Nothing that serves requests waits for any of it. A task that fails by a fault of ours is logged,
counted and begun again.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping

from pydantic import BaseModel, Field

from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.leases.link import Link
from surgetank.admission.leases.quotas import Mode, Quota, Quotas
from surgetank.admission.leases.renewer import background
from surgetank.admission.limits import Limit, Limits, Override
from surgetank.control.actions import NoOthers, Others
from surgetank.control.drain import Drain
from surgetank.control.fleet.config import FleetConfig
from surgetank.control.fleet.directed import Directed
from surgetank.control.fleet.fleet import Fleet
from surgetank.control.fleet.lint import lint_fleet
from surgetank.control.fleet.store import Store
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.registry import Registry, Sample

logger = logging.getLogger(__name__)
AGAIN = 1.0  # seconds until what failed by a fault of ours begins again
GOODBYE = 1.0  # seconds to say at the end that we leave
SHOWN = 200  # shares, those of the tenants seen last


class ShareOut(BaseModel):
    """This sidecar's part of one limit."""

    tenant: str = Field(description="empty: who bears no key, and the retry budget of all")
    limit: str
    share: float = Field(description="what is held: units a second, or slots")
    left: float = Field(description="what may be taken at once now")


class FleetOut(BaseModel):
    """Where the shares of quotas come from, and who leads."""

    mode: Mode = Field(description="single, shared, holding or alone")
    sidecars: int
    name: str = Field(description="of this sidecar, new at every start; empty without a Redis")
    leader: str = Field(description="name of who decides for all")
    leads: bool = Field(description="whether that is this one")
    failures: int = Field(description="questions that Redis did not answer in time")
    untold: int = Field(description="acts that the other sidecars have not been told of yet")
    policy: str = Field(description="as promoted for all; empty: each has its own")
    shares: list[ShareOut]


class Membership:
    """start() and stop() once each, on one event loop."""

    def __init__(
        self,
        leases: LeasesConfig,
        fleet: FleetConfig,
        *,
        quotas: Quotas,
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        journal: Journal,
        drain: Drain,
        policies: Directed,
        registry: Registry,
        host: str,
    ) -> None:
        self._quotas = quotas
        self._failures = registry.counter("shared_state_failures_total").at()
        self._renewer = background(quotas, leases, clock, rng, self._failures)
        self._fleet: Fleet | None = None
        self._policies = policies
        if leases.url is not None:
            link = Link(leases.url.get_secret_value(), leases.timeout)
            self._fleet = Fleet(
                fleet,
                store=Store(link, leases.prefix),
                clock=clock,
                rng=rng,
                limits=limits,
                journal=journal,
                drain=drain,
                policies=policies,
                host=host,
                failures=self._failures,
            )
        self._tasks: list[asyncio.Task[None]] = []
        for finding in lint_fleet(leases, fleet):
            logger.warning("%s", finding)
        registry.source("shared_state_mode", self._read_mode)
        registry.source("shared_state_sidecars", lambda: [({}, self._quotas.sidecars)])
        registry.source("fleet_leader", self._read_leader)

    @property
    def others(self) -> Others:
        """Whom an operator's acts are told to."""
        return self._fleet or NoOthers()

    def life_of(self, limit: Limit, override: Override) -> str:
        """The life of Redis in which all were told of it; "": they were not."""
        return self._fleet.life_of(limit, override) if self._fleet else ""

    def adopt(self, lives: Mapping[Limit, str], on_told: Callable[[], None]) -> None:
        """Before start(): the overrides that hold from before it, and in which life of Redis each
        was told; `on_told` is called whenever life_of() may say something else."""
        if self._fleet is not None:
            self._fleet.on_told = on_told
            self._fleet.adopt(lives)

    def start(self) -> None:
        """Begin to ask Redis; returns at once, whether there is one or not."""
        if self._fleet is None:
            return
        self._tasks = [
            asyncio.create_task(self._keep("the leases", self._renewer.run)),
            asyncio.create_task(self._keep("the fleet", self._fleet.run)),
        ]

    async def stop(self) -> None:
        """Leave: the others need not wait for what is held here. Takes a second at most."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(GOODBYE):
                await self._renewer.close()
                if self._fleet is not None:
                    await self._fleet.close()
        except TimeoutError:
            logger.warning("shared state: left without saying so")

    def view(self) -> FleetOut:
        """For the admin API: how it stands now."""
        fleet = self._fleet
        return FleetOut(
            mode=self._quotas.mode,
            sidecars=self._quotas.sidecars,
            name=fleet.name if fleet else "",
            leader=fleet.leader if fleet else "",
            leads=bool(fleet and fleet.leads),
            failures=int(self._failures.value),
            untold=fleet.untold if fleet else 0,
            policy=self._policies.name,
            shares=self._shares(),
        )

    def _shares(self) -> list[ShareOut]:
        shares = []
        for name, pool in list(self._quotas.pools())[-SHOWN:]:
            tenant, _, limit = name.rpartition(":")
            if limit != Quota.RETRIES or self._quotas.shared:
                left = max(0.0, pool.capacity - pool.taken_with(0.0))
                shares.append(ShareOut(tenant=tenant, limit=limit, share=pool.share, left=left))
        return shares

    async def _keep(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await run()
            except Exception:  # a fault of ours must not end it: quotas would go stale unseen
                self._failures.value += 1
                logger.exception("shared state: %s failed; again in %g s", what, AGAIN)
            await asyncio.sleep(AGAIN)

    def _read_mode(self) -> Iterator[Sample]:
        now = self._quotas.mode
        for mode in Mode:
            yield {"mode": mode}, mode is now

    def _read_leader(self) -> Iterator[Sample]:
        if self._fleet is not None:
            yield {}, self._fleet.leads
