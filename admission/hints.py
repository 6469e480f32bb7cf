"""When a refused client may come back: slots laid out ahead, so that not all return at once.

    slot  <- max(slot, now + max(.2, W)) + max(C / (3 * beta * mu), .0125)
    delay  = (slot - now) * U(.9, 1.1)

Whoever returns at its slot finds the wait W over. All who return together bring at most three times
beta of the work that the engine does, beta being the share of the retry budget: a retry that finds
the engine idle costs the budget nothing, and not everybody comes. With one beta an engine of one
slot, at half a second an answer, had a slot each five seconds, two in all: nearly everybody whom a
moment's queue had turned away was told not to come back, to an engine that was idle soon after. At
.9 of its capacity .92 were answered in the end instead of .85, at .7 .97 instead of .94; with ten
beta those who return after a stall keep first attempts waiting, with three they do not.

The delay is randomised here because clients obey to the millisecond. Past the deadline or 10 s the
advice is not to retry, and the slot is not used up.

A tenant at its quota has slots of its own: the first where its bucket has refilled, the next where
it has refilled again; these may be a minute away, and are never jittered to before they are due.
"""

import random
from collections import OrderedDict

from surgetank.admission.outcome import STATUS, Advice
from surgetank.telemetry.vocabulary import Outcome

OVERBOOKED = 3.0  # of what returns, to what the retry budget has room for
MIN_HINT = 0.05  # seconds; a pushback of 0 hangs grpcio clients
MAX_HINT = 10.0  # beyond it the client is told not to retry
_NOT_BEFORE = 0.2  # seconds from now to the first slot
_CLOSEST = 0.0125  # seconds between slots, however fast it drains: a hundred clients, 1.25 s
MAX_REFILL = 60.0  # the same for a quota: what the clients' libraries still wait for
_TENANTS = 1024  # whose slots are remembered
_SOON = (0.5, 1.5)  # seconds, while the service itself is away


class Hints:
    """Lays out the slots."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._slot = 0.0
        self._refills: OrderedDict[str, float] = OrderedDict()

    def advise(
        self,
        outcome: Outcome,
        *,
        now: float,
        wait: float,
        spacing: float,
        deadline: float | None,
        tenant: str = "",
    ) -> float | None:
        """Seconds to stay away, 0.05 to 10, of a quota to 60; None = do not retry.

        `wait` is W, `spacing` C / (3 * beta * mu): seconds between two slots, infinite while
        retries are not wanted; of a quota, seconds until it has refilled, and in which it does so
        again.
        `deadline` is the caller's for all its attempts together.
        """
        match STATUS[outcome].advice:
            case Advice.NEVER | Advice.NONE:
                return None
            case Advice.SOON:
                delay = self._rng.uniform(*_SOON)
                return delay if _fits(delay, now, deadline) else None
            case Advice.REFILL:
                return self._refill(tenant, wait, spacing, now, deadline)
            case Advice.SLOT:
                slot = max(self._slot, now + max(_NOT_BEFORE, wait)) + max(spacing, _CLOSEST)
                return self._take(slot, now, deadline)

    def _take(self, slot: float, now: float, deadline: float | None) -> float | None:
        delay = max(MIN_HINT, (slot - now) * self._rng.uniform(0.9, 1.1))
        if not _fits(delay, now, deadline):
            return None
        self._slot = slot
        return delay

    def _refill(
        self, tenant: str, wait: float, every: float, now: float, deadline: float | None
    ) -> float | None:
        slot = max(now + wait, self._refills.get(tenant, 0.0) + every)
        delay = max(MIN_HINT, (slot - now) * self._rng.uniform(1.0, 1.2))
        if not _fits(delay, now, deadline, most=MAX_REFILL):
            return None
        self._refills[tenant] = slot
        self._refills.move_to_end(tenant)
        if len(self._refills) > _TENANTS:
            self._refills.popitem(last=False)
        return delay


def _fits(delay: float, now: float, deadline: float | None, most: float = MAX_HINT) -> bool:
    return delay < most and (deadline is None or now + delay < deadline)
