"""This sidecar's part of one limit: looked at without waiting, refilled by the share it holds.

A limit on a rate (R units/s over all, bursts of at most b units) is held as

    level <- min(b / n, level + share * dt)        n sidecars, sum of the shares <= R

so that all sidecars together admit at most R*T + b in any window T. An amount dearer than the
whole bucket passes when it is full, and the debt is paid off before anything else passes. A limit
on concurrency (K slots) is held as in use <= share, sum of the shares <= K.
"""

import math
from dataclasses import dataclass
from typing import Protocol

_EXACT = 1e-9
_MEMORY = 1.0  # seconds; demand is measured over about that long
_HEADROOM = 2.0  # a share is asked for that is this much above the demand
_LEAST = 0.01  # of the limit; what a pool in use asks for at least
_EARNED_OVER = 10.0  # seconds
_IDLE = 1e-3  # of the limit; demand below it is none


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pool asks of Redis, in the limit's unit (rates: units/s)."""

    base: float  # the limit's total, without what is earned
    want: float  # 0: nothing any more
    held: float  # what it goes on using until it hears otherwise
    earned: float  # what this sidecar adds to the total
    spare: float  # what every sidecar that has no claim may use unasked


class Pool(Protocol):
    """One limit, as its holder sees it. Times are seconds on one monotonic clock."""

    @property
    def capacity(self) -> float:
        """The most that may be taken here."""

    @property
    def share(self) -> float:
        """The part of the limit that is held."""

    @property
    def released(self) -> bool:
        """Redis knows that nothing is wanted or held here, and nothing was asked for since."""

    def ask(self, amount: float, now: float) -> bool:
        """Whether that amount is there; counts as demand either way."""

    def taken_with(self, amount: float) -> float:
        """What would be taken of the capacity together with that amount."""

    def refill_in(self, amount: float) -> float:
        """Seconds until that amount is there, at the share held now."""

    def refill_every(self, amount: float) -> float:
        """Seconds in which that amount comes in, over and over, at the share held now."""

    def take(self, amount: float) -> None:
        """Use an amount that ask() just found."""

    def give(self, amount: float, now: float, *, used: float) -> None:
        """Give back an amount that was taken `used` seconds ago."""

    def idle(self, now: float) -> bool:
        """It is as a new one would be: whoever forgets it lets nobody pass."""

    def claim(self, now: float) -> Claim:
        """What to ask of Redis."""

    def granted(self, claim: Claim, share: float, total: float, sidecars: int) -> None:
        """Redis' answer to that claim; `total` is the limit with what all have earned."""

    def stand_alone(self, sidecars: int) -> None:
        """There is no Redis: an equal part among the sidecars known."""


class RatePool:
    """A part of a rate: a bucket that its share fills."""

    def __init__(self, base: float, burst: float, sidecars: int, now: float) -> None:
        """`base` in units/s over all sidecars, `burst` in seconds."""
        self._base = base
        self._burst = burst
        self._at = now
        self._demand = 0.0
        self._earned = 0.0
        self._leased = 0.0
        self._part = base / sidecars  # of the total, for bursts
        self._keeps_earned = False  # what it earns is its own, while there is nobody to share with
        self.released = False
        self.level = self.capacity

    @property
    def share(self) -> float:
        """Units/s that fill the bucket."""
        return self._leased + (self._earned if self._keeps_earned else 0.0)

    @property
    def capacity(self) -> float:
        return self._burst * (self._part + (self._earned if self._keeps_earned else 0.0))

    def ask(self, amount: float, now: float) -> bool:
        self._settle(now)
        self._demand += amount
        self.released = False
        return self.level + _EXACT >= self._needed(amount)

    def taken_with(self, amount: float) -> float:
        return self.capacity - self.level + amount

    def refill_in(self, amount: float) -> float:
        missing = max(0.0, self._needed(amount) - self.level)
        return missing / self.share if self.share else math.inf

    def refill_every(self, amount: float) -> float:
        return amount / self.share if self.share else math.inf

    def take(self, amount: float) -> None:
        self.level -= amount

    def give(self, amount: float, now: float, *, used: float) -> None:
        del used  # what comes back early fills the bucket as what comes back late
        self._settle(now)
        self.level = min(self.capacity, self.level + amount)

    def earn(self, amount: float, now: float) -> None:
        """Add to the limit itself, spread over the ten seconds to come."""
        self._settle(now)
        self._earned += amount / _EARNED_OVER
        self.released = False

    def idle(self, now: float) -> bool:
        self._settle(now)
        return self.level + _EXACT >= self.capacity

    def claim(self, now: float) -> Claim:
        self._settle(now)
        demand, missing = self._demand / _MEMORY, self.capacity - self.level
        want = 0.0
        if demand > _IDLE * self._base or missing > 0.0:
            want = max(_HEADROOM * demand, missing / self._burst, _LEAST * self._base)
        return Claim(self._base, want, self.share, self._earned, 0.0)

    def granted(self, claim: Claim, share: float, total: float, sidecars: int) -> None:
        self._keeps_earned = False
        self._leased, self._part = share, total / sidecars
        self.level = min(self.level, self.capacity)
        self.released = not (claim.want or claim.held or claim.earned)

    def stand_alone(self, sidecars: int) -> None:
        self._keeps_earned = True
        self._leased = self._part = self._base / sidecars
        self.level = min(self.level, self.capacity)

    def _needed(self, amount: float) -> float:
        return min(amount, self.capacity) if self.capacity > _EXACT else amount

    def _settle(self, now: float) -> None:
        passed = max(0.0, now - self._at)
        self._at = now
        self.level += self._leased * passed
        faded = math.exp(-passed / _EARNED_OVER)
        if self._keeps_earned:
            self.level += self._earned * _EARNED_OVER * (1.0 - faded)
        self._earned = self._earned * faded if self._earned > _EXACT else 0.0
        self._demand *= math.exp(-passed / _MEMORY)
        self.level = min(self.capacity, self.level)


class SlotPool:
    """A part of a number of slots."""

    def __init__(self, total: int, sidecars: int) -> None:
        self._total = total
        self._peak = 0.0
        self._usual = 1.0  # seconds that a slot is held
        self.in_use = 0.0
        self.released = False
        self.share = self._spare(sidecars)

    @property
    def capacity(self) -> float:
        return math.floor(self.share + _EXACT)

    def ask(self, amount: float, now: float) -> bool:
        del now
        self._peak = max(self._peak, self.in_use + amount)
        self.released = False
        return self.in_use + amount <= self.capacity

    def taken_with(self, amount: float) -> float:
        return self.in_use + amount

    def refill_in(self, amount: float) -> float:
        return self._usual * amount / max(1.0, self.in_use)

    def refill_every(self, amount: float) -> float:
        return self._usual * amount / max(1.0, self.capacity)

    def take(self, amount: float) -> None:
        self.in_use += amount

    def give(self, amount: float, now: float, *, used: float) -> None:
        del now
        self.in_use -= amount
        self._usual += 0.1 * (used - self._usual)

    def idle(self, now: float) -> bool:
        del now
        return not self.in_use

    def claim(self, now: float) -> Claim:
        del now
        peak = max(self.in_use, self._peak)
        self._peak = peak / 2
        want = float(math.ceil(1.25 * peak) + 1) if peak >= 1.0 else 0.0
        return Claim(self._total, want, max(self.share, self.in_use), 0.0, 1.0)

    def granted(self, claim: Claim, share: float, total: float, sidecars: int) -> None:
        del total
        self.released = not (claim.want or claim.held)
        self.share = self._spare(sidecars) if self.released else share

    def stand_alone(self, sidecars: int) -> None:
        self.share = float(self._total // sidecars)

    def _spare(self, sidecars: int) -> float:
        return 1.0 if self._total >= sidecars else 0.0
