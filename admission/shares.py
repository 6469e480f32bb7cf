"""Which class goes next: strictly the highest, save for the floor share of those below it.

While a class waits behind a higher one it earns, for every engine-second of the highest's service,

    f' = f / (1 - k*f)      k = number of classes that can wait below another, 3

engine-seconds; when that covers its first request, this one goes first. With all k waiting, the
highest is served 1 of 1 + k*f' = 1 / (1 - k*f) engine-seconds, and each other one f' of them, which
is f of the whole. So the shares sum to the capacity, the floor (5 %) is exact, and nobody starves.
What a class has earned is gone when nobody of it waits: a floor is no savings account.
"""

from collections.abc import Callable

from surgetank.telemetry.vocabulary import Priority

_BELOW = len(Priority) - 1
_NOTHING = dict.fromkeys(Priority, 0.0)


class FloorShares:
    """Earned engine-seconds of each class."""

    def __init__(self, floor: float) -> None:
        """`floor`: share of each lower class, 0 to below 1/3."""
        self._rate = floor / (1.0 - _BELOW * floor)
        self.forfeit()

    def forfeit(self) -> None:
        """Nobody waits any more."""
        self._earned = _NOTHING.copy()

    def due(self, priority: Priority, cost: float) -> bool:
        """Whether the class has earned its first request, of that cost."""
        return self._earned[priority] >= cost

    def served(self, priority: Priority, seconds: float, waits: Callable[[Priority], bool]) -> None:
        """A request of a class was dispatched; `waits` tells which classes still have some."""
        self._earned[priority] = max(0.0, self._earned[priority] - seconds)
        in_turn = not any(waits(other) for other in Priority if other < priority)
        for other in Priority:
            if not waits(other):
                self._earned[other] = 0.0
            elif in_turn and other > priority:
                self._earned[other] += self._rate * seconds
