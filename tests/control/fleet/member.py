"""A sidecar's side of its fleet over one Redis, with limits, a journal and a drain of its own."""

import random

from surgetank.admission.leases.link import Link
from surgetank.admission.limits import Limit, Limits, Override
from surgetank.control.drain import Drain
from surgetank.control.fleet.config import FleetConfig
from surgetank.control.fleet.fleet import Fleet
from surgetank.control.fleet.store import Store
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import ManualClock

NAME = Limit.QUEUE_REQUESTS


class Followed:
    """Policies that do as they are told; `why` the common one fell here, where it did."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.why: str | None = None

    def use(self, name: str, *, who: str, why: str, ttl: float | None) -> None:
        self.used.append(name)

    def fallen(self) -> str | None:
        return self.why


class Member:
    """A sidecar's fleet side, with limits and a journal of its own."""

    def __init__(self, url: str, clock: ManualClock, seed: int, lease: float = 3.0) -> None:
        self.clock = clock
        self.limits = Limits()
        self.journal = Journal(clock, None)
        self.policies = Followed()
        self.turns: list[bool] = []
        self.drain = Drain(clock, self.journal, self.turns.append)
        self.link = Link(url, 0.5)
        self.fleet = Fleet(
            FleetConfig(lease=lease),
            store=Store(self.link, "surgetank"),
            clock=clock,
            rng=random.Random(seed),
            limits=self.limits,
            journal=self.journal,
            drain=self.drain,
            policies=self.policies,
            host=f"host{seed}",
        )

    def override(self, value: float, ttl: float, why: str = "storm") -> None:
        """As an operator does it: here at once, and told to all."""
        until = self.clock.monotonic() + ttl
        self.limits.override(NAME, value, until=until, who="ann", why=why)
        self.fleet.tell_override(NAME, Override(value, until, "ann", why))

    @property
    def value(self) -> float:
        return self.limits.get(NAME)

    @property
    def ends_in(self) -> float:
        return self.limits.next_expiry - self.clock.monotonic()
