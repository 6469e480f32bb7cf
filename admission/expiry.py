"""When things end by themselves: the earliest of many instants, with cheap removal."""

import heapq
from collections.abc import Hashable
from itertools import count
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_SLACK = 64  # stale entries that are not worth a rebuild


class Expiries(Generic[K]):
    """One instant per key, the earliest first.

    discard() leaves its heap entry behind; when stale entries outnumber live ones the heap is
    rebuilt, so that add and discard stay O(log n) amortised and memory O(live keys).
    """

    def __init__(self) -> None:
        self._at: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at: float | None) -> None:
        """Let `key` expire at `at`, instead of when it was to before; None = never."""
        if at is None:
            self.discard(key)
            return
        entry = (at, next(self._order))
        self._at[key] = entry
        heapq.heappush(self._heap, (*entry, key))
        self._compact()

    def discard(self, key: K) -> None:
        """Forget `key`; unknown keys are fine."""
        if self._at.pop(key, None) is not None:
            self._compact()

    def next_at(self) -> float:
        """The earliest instant; infinite when nothing expires."""
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def pop_due(self, now: float) -> list[K]:
        """Every key whose instant has come, earliest first; they are forgotten."""
        due = []
        while self.next_at() <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            due.append(key)
        return due

    def _stale(self, entry: tuple[float, int, K]) -> bool:
        return self._at.get(entry[2]) != entry[:2]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = [(*entry, key) for key, entry in self._at.items()]
            heapq.heapify(self._heap)
