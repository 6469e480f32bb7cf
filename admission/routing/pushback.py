"""How long an engine that turned a request away (429, 503, 529) comes after all others with room.

    pause(k) = min(2 s, .05 s * 2^(k-1))      after k refusals since it last answered a request

It is full for a moment, or it refuses everything: then it is idle, would look the best of all, and
each request would go by way of it. What no other has room for it still gets. (Backing off by powers
of two, as Ethernet does: Metcalfe and Boggs, 1976.)
"""

from dataclasses import dataclass
from math import inf

_FIRST = 0.05  # seconds
_MOST = 2.0


@dataclass(frozen=True, slots=True)
class Pushback:
    """One engine's."""

    refusals: int = 0
    until: float = -inf  # monotonic seconds

    def lasts(self, now: float) -> bool:
        """Whether others come first."""
        return now < self.until


def refused(pushback: Pushback, now: float) -> Pushback:
    """One more request was turned away."""
    pause = min(_MOST, _FIRST * 2.0 ** min(pushback.refusals, 16))
    return Pushback(pushback.refusals + 1, now + pause)
