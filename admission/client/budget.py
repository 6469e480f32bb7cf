"""One client's retry budget: how many retries its own calls have earned.

Every call deposits `ratio` of a retry, which lasts `ttl` seconds; `floor` retries a second come on
top, so that a client with little traffic can retry at all. Whatever fails, in any window T

    retries  <=  ratio * (calls in T + ttl) + floor * (T + ttl)

The form is that of Finagle's RetryBudget (deposits that expire, a reserve, a ratio); the defaults
are lower, since an answer of a language model costs more than a lookup.
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
        self._reserve = floor * ttl
        self._slot = ttl / _SLOTS
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._moves: deque[list[float]] = deque()  # [slot's number, sum of deposits and payments]

    @property
    def balance(self) -> float:
        """Retries that may be made now."""
        with self._lock:
            return self._balance()

    def deposit(self) -> None:
        """A call began: not one of its retries."""
        with self._lock:
            self._move(self._ratio)

    def withdraw(self) -> bool:
        """Pay for one retry; False when it is not covered, and nothing was paid."""
        with self._lock:
            if self._balance() < 1.0 - _EXACT:
                return False
            self._move(-1.0)
            return True

    def _balance(self) -> float:
        oldest = self._now() - _SLOTS
        while self._moves and self._moves[0][0] <= oldest:
            self._moves.popleft()
        return self._reserve + sum(amount for _, amount in self._moves)

    def _move(self, amount: float) -> None:
        now = self._now()
        if not self._moves or self._moves[-1][0] != now:
            self._moves.append([now, 0.0])
        self._moves[-1][1] += amount

    def _now(self) -> int:
        return int(self._clock.monotonic() / self._slot)
