"""Tenants' quotas and the retry budget, as the gate asks for them: at once, and all or nothing."""

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from surgetank.admission.leases.config import FREE, LeasesConfig
from surgetank.admission.leases.pools import Pool, RatePool, SlotPool
from surgetank.telemetry.clock import Clock

logger = logging.getLogger(__name__)
_TENANTS = 1024  # whose pools are kept; beyond it those go that are idle, the longest unused first
_MOST = 16_384  # and beyond that those that are not, too


class Quota(StrEnum):
    """The limits that sidecars share."""

    REQUESTS = "requests_per_minute"
    TOKENS = "tokens_per_minute"
    CONCURRENCY = "concurrency"
    RETRIES = "retry_budget"  # engine-seconds, of all tenants together


class Mode(StrEnum):
    """Where this sidecar's shares come from."""

    SINGLE = "single"  # it is the only one, by configuration
    SHARED = "shared"  # leases, renewed in time
    HOLDING = "holding"  # Redis is lost: the last shares go on
    ALONE = "alone"  # lost for longer: limit / sidecars known


@dataclass(frozen=True, slots=True)
class Denied:
    """A limit was met, and nothing was taken. `measured` > `allowed`, both of this sidecar's part,
    in requests, tokens, slots or engine-seconds."""

    limit: Quota
    allowed: float
    measured: float
    refill_in: float  # seconds until it would fit; infinite while this sidecar has no share
    every: float = 0.0  # seconds in which as much comes in again, for one after the other


class Taken:
    """What a request took. End it exactly once."""

    __slots__ = ("_at", "_clock", "_lots")

    def __init__(self, clock: Clock, lots: list[tuple[Quota, Pool, float]]) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._lots: list[tuple[Quota, Pool, float]] | None = lots

    def end(self, unused: Mapping[Quota, float] | None = None) -> None:
        """The request is over: its slot comes back, and of its tokens those it did not use.
        RuntimeError on a second end."""
        lots, now = self._close()
        for quota, pool, amount in lots:
            back = amount if quota is Quota.CONCURRENCY else (unused or {}).get(quota, 0.0)
            if back:
                pool.give(min(back, amount), now, used=now - self._at)

    def undo(self) -> None:
        """The request was refused after all: everything comes back. RuntimeError after an end."""
        lots, now = self._close()
        for _, pool, amount in lots:
            pool.give(amount, now, used=now - self._at)

    def _close(self) -> tuple[list[tuple[Quota, Pool, float]], float]:
        if self._lots is None:
            raise RuntimeError("a request's quota was given back twice")
        lots, self._lots = self._lots, None
        return lots, self._clock.monotonic()


class Quotas:
    """This sidecar's part of every limit. Belongs to the event loop's thread; nothing here waits.

    Without a Redis by configuration it is the only sidecar, under the same rules.
    """

    def __init__(self, config: LeasesConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.shared = config.url is not None  # with other sidecars, by configuration
        free = (config.default, *config.tenants.values()) == (FREE,) * (1 + len(config.tenants))
        self.unlimited = free and not self.shared  # nothing is limited: there is no need to ask
        self._contact = -math.inf  # when Redis was last asked what it then answered
        self._alone = True
        self._pools: OrderedDict[str, dict[Quota, Pool]] = OrderedDict()
        self.sidecars = config.sidecars if self.shared else 1
        self.on_need: Callable[[], None] = lambda: None  # a renewal would help now
        now = clock.monotonic()
        self._retries = self._rate(config.retry_floor, now)
        self._retries.stand_alone(self.sidecars)

    @property
    def mode(self) -> Mode:
        """Where shares come from now."""
        if not self.shared:
            return Mode.SINGLE
        silence = self._clock.monotonic() - self._contact
        if silence < self._config.term:
            return Mode.SHARED
        return Mode.HOLDING if silence < self._config.term + self._config.hold else Mode.ALONE

    def take(self, tenant: str, amounts: Mapping[Quota, float]) -> Taken | Denied:
        """All of the amounts, or none and the first limit met. What is not limited is free.

        RETRIES is one budget whatever the tenant, in engine-seconds.
        """
        now = self._look(self._clock.monotonic())
        pools = self._of(tenant, now)
        lots = [(each, pools[each], amounts[each]) for each in amounts if each in pools]
        if Quota.RETRIES in amounts:
            lots.append((Quota.RETRIES, self._retries, amounts[Quota.RETRIES]))
        short = [lot for lot in lots if not lot[1].ask(lot[2], now)]
        if short:
            self.on_need()
            quota, pool, amount = short[0]
            measured = pool.taken_with(amount)
            every = pool.refill_every(amount)
            return Denied(quota, pool.capacity, measured, pool.refill_in(amount), every)
        for _, pool, amount in lots:
            pool.take(amount)
        return Taken(self._clock, lots)

    def earn(self, amount: float) -> None:
        """A first attempt was admitted: beta of its engine-seconds are there for retries."""
        now = self._look(self._clock.monotonic())
        self._retries.earn(amount, now)

    def pools(self) -> Iterator[tuple[str, Pool]]:
        """Every pool by its name among all sidecars."""
        yield f":{Quota.RETRIES}", self._retries
        for tenant, pools in self._pools.items():
            for quota, pool in pools.items():
                yield f"{tenant}:{quota}", pool

    def renewed(self, asked_at: float, sidecars: int) -> None:
        """Redis answered a question of that time; `sidecars` is how many it knows."""
        if self.mode in (Mode.HOLDING, Mode.ALONE):
            logger.info("shared state: joined, %d sidecars", sidecars)
        self._contact = asked_at
        self._alone = False
        self.sidecars = max(sidecars, 1)
        for tenant, pools in list(self._pools.items()):
            if all(pool.released for pool in pools.values()):
                del self._pools[tenant]

    def _of(self, tenant: str, now: float) -> Mapping[Quota, Pool]:
        pools = self._pools.get(tenant)
        if pools is None:
            pools = self._pools[tenant] = self._new(tenant, now)
            self._forget(now)
            self.on_need()
        self._pools.move_to_end(tenant)
        return pools

    def _forget(self, now: float) -> None:
        """Two at most, where there are too many. A tenant that holds a slot or has used its rate
        stays: forgotten, it would begin with all of its limits anew."""
        for _ in range(2):
            if len(self._pools) <= _TENANTS:
                return
            oldest = next(iter(self._pools))
            idle = all(pool.idle(now) for pool in self._pools[oldest].values())
            if idle or len(self._pools) > _MOST:
                del self._pools[oldest]
            else:
                self._pools.move_to_end(oldest)

    def _new(self, tenant: str, now: float) -> dict[Quota, Pool]:
        quota = self._config.quota(tenant)
        pools: dict[Quota, Pool] = {}
        if quota.requests_per_minute is not None:
            pools[Quota.REQUESTS] = self._rate(quota.requests_per_minute / 60, now)
        if quota.tokens_per_minute is not None:
            pools[Quota.TOKENS] = self._rate(quota.tokens_per_minute / 60, now)
        if quota.concurrency is not None:
            pools[Quota.CONCURRENCY] = SlotPool(quota.concurrency, self.sidecars)
        if self._alone:
            for pool in pools.values():
                pool.stand_alone(self.sidecars)
        return pools

    def _rate(self, per_second: float, now: float) -> RatePool:
        return RatePool(per_second, self._config.burst, self.sidecars, now)

    def _look(self, now: float) -> float:
        """Notice that Redis has been lost for too long."""
        if not self._alone and now - self._contact >= self._config.term + self._config.hold:
            self._alone = True
            logger.warning("shared state: lost, going on with 1/%d of each limit", self.sidecars)
            for _, pool in self.pools():
                pool.stand_alone(self.sidecars)
        return now
