"""Which class goes next: strictly the highest, save for the floor share of those below it.

While a class waits behind higher ones it earns, for every engine-second that they are served,

    f' = f / (1 - k*f)      k = number of classes that can wait below another, 3

engine-seconds; when that covers its first request, this one goes first. In the worst case all k
earn at once: of 1 + k*f' engine-seconds each gets f' = f of the whole, and the highest 1 - k*f. So
the shares sum to the capacity, none of those who wait starves, and the floor (5 %) is exact. What a
class has earned is gone when nobody of it waits: a floor is no savings account.
"""

from collections.abc import Callable

from surgetank.telemetry.vocabulary import Priority

_BELOW = len(Priority) - 1


class FloorShares:
    """Earned engine-seconds of each class."""

    def __init__(self, floor: float) -> None:
        """`floor`: share of each lower class, 0 to below 1/3."""
        self._rate = floor / (1.0 - _BELOW * floor)
        self._earned = dict.fromkeys(Priority, 0.0)

    def due(self, priority: Priority, cost: float) -> bool:
        """Whether the class has earned its first request, of that cost."""
        return self._earned[priority] >= cost

    def served(self, priority: Priority, seconds: float, waits: Callable[[Priority], bool]) -> None:
        """A request of a class was dispatched; `waits` tells which classes still have some."""
        self._earned[priority] = max(0.0, self._earned[priority] - seconds)
        for other in Priority:
            if not waits(other):
                self._earned[other] = 0.0
            elif other > priority:
                self._earned[other] += self._rate * seconds
