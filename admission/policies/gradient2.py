"""Gradient2: a concurrency limit from the ratio of long-term to current latency.

After Netflix concurrency-limits, class Gradient2Limit, with its defaults. Once a second:

    gradient = max(.5, min(1, tolerance * long / short))
    limit    = .8 * limit + .2 * (gradient * limit + queue)

where short is the mean latency of the second and long an average of it over 600 samples; a long
term more than twice the short one is brought down by 5 % a sample. No change while fewer than half
of the limit is in flight.
"""

from surgetank.admission.policies.rule import Met, Seen
from surgetank.telemetry.vocabulary import Reason

_WINDOW = 1.0  # seconds
_ENOUGH = 10  # samples that make a window
_LONG = 600  # samples of the long-term average
_WARM_UP = 10  # of them, averaged plainly
_TOLERANCE = 1.5
_SMOOTHING = 0.2
_QUEUE = 4.0
_MIN, _MAX = 20.0, 200.0


class Gradient2:
    """Learns its limit."""

    def __init__(self) -> None:
        self.limit = _MIN
        self._long = 0.0
        self._samples = 0
        self._ends = _WINDOW
        self._sum = 0.0
        self._count = 0
        self._most_in_flight = 0

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While fewer than the limit are in flight."""
        return seen.in_flight < int(self.limit)

    def met(self, prompt: int, seen: Seen) -> Met:
        """The limit."""
        return Met(Reason.IN_FLIGHT, seen.in_flight + 1, int(self.limit), "gradient2")

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """A latency; at the end of a window, a new limit."""
        if ok:
            self._sum += now - began
            self._count += 1
        self._most_in_flight = max(self._most_in_flight, seen.in_flight + 1)
        if now >= self._ends and self._count >= _ENOUGH:
            self._update(self._sum / self._count)
            self._ends = now + _WINDOW
            self._sum, self._count, self._most_in_flight = 0.0, 0, 0

    def _update(self, short: float) -> None:
        self._samples += 1
        if self._samples <= _WARM_UP:
            self._long += (short - self._long) / self._samples
        else:
            self._long += (short - self._long) * 2 / (_LONG + 1)
        if self._long > 2 * short:
            self._long *= 0.95
        if self._most_in_flight < self.limit / 2:
            return
        gradient = max(0.5, min(1.0, _TOLERANCE * self._long / short))
        wanted = gradient * self.limit + _QUEUE
        smoothed = (1 - _SMOOTHING) * self.limit + _SMOOTHING * wanted
        self.limit = max(_MIN, min(_MAX, smoothed))
