"""A static limit on requests in flight, as most proxies have."""

from surgetank.control.lab.rivals.door import Seen


class InFlight:
    """At most `limit` requests past the door."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While there is a place."""
        return seen.in_flight < self._limit

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
