"""Virtual time: a clock that jumps from one thing that happens to the next, and its callbacks."""

import heapq
import math
from collections.abc import Callable
from itertools import count

_EPOCH = 1_700_000_000.0  # what wall() says at 0: fixed, so that the same seed gives the same bytes
_SLACK = 256  # cancelled entries that are not worth a rebuild


class Timer:
    """One callback to come; a handle as admission.dispatch.TimerHandle wants it."""

    __slots__ = ("_timeline", "callback")

    def __init__(self, timeline: "Timeline", callback: Callable[[], object]) -> None:
        self._timeline = timeline
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """It shall not fire; nothing happens when it has."""
        if self.callback is not None:
            self.callback = None
            self._timeline.forget()


class Timeline:
    """Clock and timer in one. Callbacks of one instant run in the order in which they were set."""

    def __init__(self) -> None:
        self._now = 0.0
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0

    def monotonic(self) -> float:
        """Seconds since the run began."""
        return self._now

    def wall(self) -> float:
        """Seconds since the Unix epoch, of a run that always begins at the same moment."""
        return _EPOCH + self._now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Run it after so many seconds; a negative delay means now, after what is due already."""
        return self.call_at(self._now + max(0.0, delay), callback)

    def call_at(self, at: float, callback: Callable[[], object], /) -> Timer:
        """Run it at that instant, or now when that has passed."""
        timer = Timer(self, callback)
        heapq.heappush(self._heap, (max(at, self._now), next(self._order), timer))
        return timer

    def next_at(self) -> float:
        """When the next callback is due; infinity when there is none."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else math.inf

    def run(self, until: float) -> None:
        """Play everything due up to `until`; then it is `until`."""
        while self.next_at() <= until:
            at, _, timer = heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            self._now = at
            if callback is not None:
                callback()
        self._now = max(self._now, until)

    def forget(self) -> None:
        """A timer was cancelled: when most are, drop them all, so that memory stays bounded."""
        self._cancelled += 1
        if self._cancelled > _SLACK and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
