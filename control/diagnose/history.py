"""The looks of the last minute, and coarser counts of the last hours, as the control loop ticks."""

from collections import deque

from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.diagnose.look import Counts, Eyes, Look

SPAN = 60.0  # seconds of looks that are kept
SPACING = 0.5  # seconds between two of them
COARSE_SPAN = 6 * 3600.0
COARSE_SPACING = 15.0


class History:
    """read() stands where the control loop takes its snapshot from: it remembers as it reads."""

    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes
        self._looks: deque[Look] = deque(maxlen=int(SPAN / SPACING) + 1)
        self._coarse: deque[tuple[float, Counts]] = deque(
            maxlen=int(COARSE_SPAN / COARSE_SPACING) + 1
        )

    def read(self) -> DeskSnapshot:
        """The desk now; kept with what belongs to it when the last look is old enough."""
        snapshot = self._eyes.snapshot()
        if not self._looks or snapshot.at - self._looks[-1].desk.at >= SPACING:
            look = Look(snapshot, self._eyes.held(), self._eyes.counts())
            self._looks.append(look)
            if not self._coarse or snapshot.at - self._coarse[-1][0] >= COARSE_SPACING:
                self._coarse.append((snapshot.at, look.counts))
        return snapshot

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
