"""One client's retry budget: how many retries its own calls have earned.

Every call deposits `ratio` of a retry, which lasts `ttl` seconds; `floor` retries a second come on
top, so that a client with little traffic can retry at all. Whatever fails, in any window T

    retries  <=  ratio * (calls in T + ttl) + floor * (T + ttl)

The form is that of Finagle's RetryBudget (deposits that expire, a reserve, a ratio), with lower
defaults, since an answer of a language model costs more than a lookup.
"""

import threading
from collections import deque

from surgetank.telemetry.clock import Clock, SystemClock

_SLOTS = 10  # into which a ttl is cut; deposits within one expire together
_EXACT = 1e-9  # ten tenths are one


class RetryBudget:
    """Share one among all calls of a client to one service. Any thread may call."""

    def __init__(
        self,
        *,
        ratio: float = 0.1,
        floor: float = 0.5,
        ttl: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        """ValueError when a value is out of its range."""
        for name, value, least, most in (
            ("ratio", ratio, 0.0, 1.0),
            ("floor", floor, 0.0, 1000.0),
            ("ttl", ttl, 1.0, 60.0),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}; allowed: {least:g} to {most:g}")
        self._ratio = ratio
        self._floor = floor
        self._most = self._reserve = floor * ttl
        self._slot = ttl / _SLOTS
        self._clock = clock or SystemClock()
        self._filled_at = self._clock.monotonic()
        self._deposits: deque[list[float]] = deque()  # [slot's number, what is left of it]
        self._lock = threading.Lock()

    @property
    def balance(self) -> float:
        """Retries that may be made now; never below 0."""
        with self._lock:
            return self._settle()

    def deposit(self) -> None:
        """A call began: not one of its retries."""
        with self._lock:
            slot = int(self._clock.monotonic() / self._slot)
            if not self._deposits or self._deposits[-1][0] != slot:
                self._deposits.append([slot, 0.0])
            self._deposits[-1][1] += self._ratio

    def withdraw(self) -> bool:
        """Pay for one retry; False when it is not covered, and nothing was paid."""
        with self._lock:
            if self._settle() < 1.0 - _EXACT:
                return False
            cost = 1.0
            while cost > 0.0 and self._deposits:  # what expires first goes first
                used = min(cost, self._deposits[0][1])
                cost -= used
                self._deposits[0][1] -= used
                if self._deposits[0][1] <= 0.0:
                    self._deposits.popleft()
            self._reserve = max(0.0, self._reserve - cost)
            return True

    def _settle(self) -> float:
        now = self._clock.monotonic()
        oldest = int(now / self._slot) - _SLOTS
        while self._deposits and self._deposits[0][0] <= oldest:
            self._deposits.popleft()
        filled = self._reserve + self._floor * (now - self._filled_at)
        self._reserve, self._filled_at = min(self._most, filled), now
        return self._reserve + sum(left for _, left in self._deposits)
