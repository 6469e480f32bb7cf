"""Time as a parameter: the one place that reads the system's clocks."""

import time
from typing import Protocol


class Clock(Protocol):
    """What every component asks for the time, so that tests and the lab can own it."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; its zero means nothing."""

    def wall(self) -> float:
        """Seconds since the Unix epoch; only for what people and other machines read."""


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that moves only when told to: virtual time for the lab, frozen time for tests."""

    def __init__(self, now: float = 0.0, epoch: float = 1_700_000_000.0) -> None:
        self._now = now
        self._epoch = epoch - now

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._epoch + self._now

    def advance(self, seconds: float) -> None:
        """Move forward; ValueError when asked to go back."""
        if seconds < 0:
            raise ValueError(f"advance: seconds is {seconds}; allowed: >= 0")
        self._now += seconds
