"""A static limit on requests in flight, as most proxies have."""

from collections.abc import Callable

from surgetank.admission.policies.rule import Met, Seen
from surgetank.telemetry.vocabulary import Reason


class InFlight:
    """At most `limit()` requests past the door."""

    def __init__(self, limit: Callable[[], float]) -> None:
        self._limit = limit

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While there is a place."""
        return seen.in_flight < self._limit()

    def met(self, prompt: int, seen: Seen) -> Met:
        """The limit."""
        return Met(Reason.IN_FLIGHT, seen.in_flight + 1, self._limit(), "in_flight")

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
