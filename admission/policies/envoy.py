"""Envoy's adaptive concurrency: a limit from the ratio of an ideal latency to the current one.

After Envoy's documentation of its gradient controller, with the values of its example. Every 60 s
(+ up to 15 %) only 3 requests at once go through until 50 of them have ended: the median is the
ideal latency. Else every 100 ms, with the median of what ended:

    gradient = max(.5, min(2, 1.25 * ideal / current)),  limit = gradient * limit + sqrt(of that)

Five windows in a row at the least limit bring the next measurement forward.
"""

import math
import random

from surgetank.admission.policies.rule import Met, Seen
from surgetank.telemetry.vocabulary import Reason

_WINDOW = 0.1  # seconds
_INTERVAL, _JITTER = 60.0, 0.15
_MEASURED = 50  # requests of one measurement
_BUFFER = 1.25
_MIN, _MAX = 3, 1000
_PATIENCE = 5  # windows at the least limit


class Envoy:
    """Learns its limit."""

    def __init__(self, rng: random.Random) -> None:
        self.limit = _MIN
        self._rng = rng
        self._samples: list[float] = []
        self._ideal = 0.0
        self._measuring_since: float | None = 0.0
        self._restored = _MIN
        self._next = 0.0
        self._window_ends = 0.0
        self._at_least = 0

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While fewer than the limit are in flight."""
        self._tick(now)
        return seen.in_flight < self.limit

    def met(self, prompt: int, seen: Seen) -> Met:
        """The limit."""
        return Met(Reason.IN_FLIGHT, seen.in_flight + 1, self.limit, "adaptive_concurrency")

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """A latency; during a measurement only of what began in it."""
        if ok and (self._measuring_since is None or began >= self._measuring_since):
            self._samples.append(now - began)
        self._tick(now)

    def _tick(self, now: float) -> None:
        if self._measuring_since is not None:
            if len(self._samples) >= _MEASURED:
                self._measured(now)
        elif now >= self._next or self._at_least >= _PATIENCE:
            self._measuring_since, self._restored = now, self.limit
            self.limit, self._samples, self._at_least = _MIN, [], 0
        elif now >= self._window_ends and self._samples:
            self._update(now)

    def _measured(self, now: float) -> None:
        self._ideal = _median(self._samples)
        self.limit, self._measuring_since = self._restored, None
        self._samples = []
        self._next = now + _INTERVAL * (1 + self._rng.uniform(0, _JITTER))
        self._window_ends = now + _WINDOW

    def _update(self, now: float) -> None:
        gradient = max(0.5, min(2.0, _BUFFER * self._ideal / _median(self._samples)))
        wanted = gradient * self.limit
        self.limit = max(_MIN, min(_MAX, int(wanted + math.sqrt(wanted))))
        self._at_least = self._at_least + 1 if self.limit == _MIN else 0
        self._samples = []
        self._window_ends = now + _WINDOW


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
