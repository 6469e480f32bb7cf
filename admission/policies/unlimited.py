"""No admission control: everything comes in."""

import math

from surgetank.admission.policies.rule import Met, Seen
from surgetank.telemetry.vocabulary import Reason


class Unlimited:
    """Says yes."""

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """Always."""
        return True

    def met(self, prompt: int, seen: Seen) -> Met:
        """Never in the way."""
        return Met(Reason.IN_FLIGHT, seen.in_flight, math.inf, "none")

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
