"""Sliding windows over injected time: how fast, and how long, lately."""

from collections import deque

from surgetank.telemetry.clock import Clock


class RateWindow:
    """Amounts per second over the last `span` seconds, kept in `slots` equal parts.

    The oldest part leaves as a whole, so the time covered is between span - span / slots and span;
    the rate is over exactly the time covered.
    """

    def __init__(self, clock: Clock, span: float, slots: int = 20) -> None:
        if span <= 0 or slots < 1:
            raise ValueError(f"span is {span}, slots is {slots}; allowed: span > 0, slots >= 1")
        self._clock = clock
        self._width = span / slots
        self._slots = slots
        self._started = clock.monotonic()
        self._parts: deque[tuple[int, float]] = deque()  # (slot number, amount), oldest first

    def add(self, amount: float = 1.0) -> None:
        """Something happened now."""
        slot = self._expire(self._clock.monotonic())
        if self._parts and self._parts[-1][0] == slot:
            amount += self._parts.pop()[1]
        self._parts.append((slot, amount))

    def total(self) -> float:
        """The amounts in the window."""
        self._expire(self._clock.monotonic())
        return sum(amount for _, amount in self._parts)

    def rate(self) -> float | None:
        """Per second; None while no time has passed."""
        now = self._clock.monotonic()
        total = self.total()
        slot = int((now - self._started) / self._width)
        begin = max(0, slot - self._slots + 1) * self._width
        covered = now - self._started - begin
        return total / covered if covered > 0 else None

    def _expire(self, now: float) -> int:
        """Drop what left the window; returns the number of the slot that `now` is in."""
        slot = int((now - self._started) / self._width)
        while self._parts and self._parts[0][0] <= slot - self._slots:
            self._parts.popleft()
        return slot


class QuantileWindow:
    """Quantiles of the values of the last `span` seconds, at most the latest `capacity` of them."""

    def __init__(self, clock: Clock, span: float, capacity: int = 4096) -> None:
        if span <= 0 or capacity < 1:
            raise ValueError(
                f"span is {span}, capacity is {capacity}; allowed: span > 0, capacity >= 1"
            )
        self._clock = clock
        self._span = span
        self._values: deque[tuple[float, float]] = deque(maxlen=capacity)  # (when, value)

    def add(self, value: float) -> None:
        """A value observed now."""
        self._values.append((self._clock.monotonic(), value))

    def count(self) -> int:
        """How many values are in the window."""
        self._expire()
        return len(self._values)

    def quantile(self, q: float) -> float | None:
        """The q-quantile (0 to 1), interpolated linearly between ranks; None without values."""
        if not 0 <= q <= 1:
            raise ValueError(f"q is {q}; allowed: 0 to 1")
        self._expire()
        if not self._values:
            return None
        ordered = sorted(value for _, value in self._values)
        rank = q * (len(ordered) - 1)
        below = int(rank)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - self._span
        while self._values and self._values[0][0] < oldest:
            self._values.popleft()
