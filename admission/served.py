"""How much of the engine a class and its tenants took lately: what will overtake those who wait.

A fading rate: r = ln 2 / h * sum of amounts * 2^(-age / h), half-life h = 5 s. For a steady flow
its expectation is the flow.
"""

import math
from collections import OrderedDict

_HALF_LIFE = 5.0  # seconds
_DECAY = math.log(2) / _HALF_LIFE
_TENANTS = 4096


class FadingRate:
    """Amounts per second, recent ones counting most."""

    __slots__ = ("_at", "_sum")

    def __init__(self) -> None:
        self._sum = 0.0
        self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        """An amount at `now`, which never goes back."""
        self._sum = self._sum * math.exp(_DECAY * (self._at - now)) + amount
        self._at = now

    def per_second(self, now: float) -> float:
        """The rate at `now`."""
        if not self._sum:
            return 0.0
        return _DECAY * self._sum * math.exp(_DECAY * min(0.0, self._at - now))


class ServedRates:
    """Engine-seconds per second of one class, and of each of its tenants."""

    def __init__(self) -> None:
        self._all = FadingRate()
        self._tenants: OrderedDict[str, FadingRate] = OrderedDict()

    def add(self, tenant: str, seconds: float, now: float) -> None:
        """A request of that tenant was dispatched."""
        self._all.add(seconds, now)
        rate = self._tenants.get(tenant)
        if rate is None:
            rate = self._tenants[tenant] = FadingRate()
        rate.add(seconds, now)
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > _TENANTS:
            self._tenants.popitem(last=False)

    def total(self, now: float) -> float:
        """All tenants together."""
        return self._all.per_second(now)

    def others(self, tenant: str, now: float) -> float:
        """All but one."""
        own = self._tenants.get(tenant)
        mine = 0.0 if own is None else own.per_second(now)
        return max(0.0, self._all.per_second(now) - mine)
