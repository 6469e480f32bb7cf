"""The looks of the last minute, and coarser counts of the last hours, as the control loop ticks."""

from collections import deque
from collections.abc import Callable

from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.diagnose.facts import dropped
from surgetank.control.diagnose.hold import Cause, cause_of
from surgetank.control.diagnose.look import Counts, Eyes, Look

SPAN = 60.0  # seconds of looks that are kept
SPACING = 0.5  # seconds between two of them
LONGEST = 4 * SPACING  # that one look may stand for
COARSE_SPAN = 6 * 3600.0
COARSE_SPACING = 15.0


class History:
    """read() stands where the control loop takes its snapshot from: it remembers as it reads.

    `tell_held(cause, seconds)` hears what kept the next request out since the look before, while
    somebody waits at the gate or is turned away for load.
    """

    def __init__(self, eyes: Eyes, tell_held: Callable[[Cause, float], None]) -> None:
        self._eyes = eyes
        self._tell_held = tell_held
        self._looks: deque[Look] = deque(maxlen=int(SPAN / SPACING) + 1)
        self._coarse: deque[tuple[float, Counts]] = deque(
            maxlen=int(COARSE_SPAN / COARSE_SPACING) + 1
        )

    def read(self) -> DeskSnapshot:
        """The desk now; kept with what belongs to it when the last look is old enough."""
        snapshot = self._eyes.snapshot()
        if not self._looks or snapshot.at - self._looks[-1].desk.at >= SPACING:
            look = Look(snapshot, self._eyes.held(), self._eyes.counts())
            self._tell(look)
            self._looks.append(look)
            if not self._coarse or snapshot.at - self._coarse[-1][0] >= COARSE_SPACING:
                self._coarse.append((snapshot.at, look.counts))
        return snapshot

    def _tell(self, look: Look) -> None:
        if not self._looks:
            return
        before = self._looks[-1]
        if look.desk.queue_requests or dropped(look.counts.since(before.counts)):
            self._tell_held(cause_of(look), min(look.desk.at - before.desk.at, LONGEST))

    def looks(self) -> tuple[Look, ...]:
        """Oldest first; the last one is taken now."""
        return (*self._looks, self._eyes.look())

    def counts_before(self, at: float) -> tuple[float, Counts]:
        """The newest coarse counts from `at` or before, with their time; else the oldest there
        are, or empty ones as of `at`."""
        found = (at, Counts())
        for index, (then, counts) in enumerate(self._coarse):
            if index and then > at:
                break
            found = (then, counts)
        return found
