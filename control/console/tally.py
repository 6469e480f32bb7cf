"""Totals at one moment, and the rates between two."""

from collections import Counter
from dataclasses import dataclass

from surgetank.admission.flow import Flow
from surgetank.control.console.meter import StepCounts
from surgetank.control.diagnose.look import Counts
from surgetank.telemetry.vocabulary import Outcome, Reason


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted until `at` (monotonic seconds)."""

    at: float
    counts: Counts
    flow: Flow
    steps: StepCounts


@dataclass(frozen=True, slots=True)
class Rates:
    """What was counted over `seconds`, each told per second; all 0 over no time."""

    seconds: float
    counts: Counts
    flow: Flow
    steps: StepCounts

    @classmethod
    def between(cls, before: Tally, after: Tally) -> "Rates":
        """From the earlier to the later."""
        return cls(
            after.at - before.at,
            after.counts.since(before.counts),
            after.flow.since(before.flow),
            after.steps.since(before.steps),
        )

    def per_second(self, count: float) -> float:
        """A count of this span as a rate."""
        return count / self.seconds if self.seconds > 0 else 0.0

    @property
    def arrivals(self) -> float:
        """Whatever came to a door."""
        return self.per_second(self.counts.received)

    @property
    def unread(self) -> float:
        """Arrivals that were turned away, or are still being read, without a lane."""
        return self.per_second(max(0, self.counts.received - self.flow.first - self.flow.retries))

    @property
    def failed(self) -> float:
        """Ends that are not ok; a client that went away is not counted."""
        served = self.counts.outcomes[Outcome.OK] + self.counts.outcomes[Outcome.CANCELLED]
        return self.per_second(self.counts.outcomes.total() - served)

    def outcome(self, outcome: Outcome) -> float:
        """Requests that ended so."""
        return self.per_second(self.counts.outcomes[outcome])

    def reasons(self) -> tuple[tuple[str, float], ...]:
        """Why the gate refused, the most frequent first."""
        refused: Counter[Reason] = self.counts.refused
        return tuple(
            (reason.value, self.per_second(count))
            for reason, count in refused.most_common()
            if count
        )

    def slots(self) -> tuple[float, ...]:
        """Shares of the slot-steps, in SlotState's order; all 0 without a step."""
        whole = sum(self.steps.slots)
        return tuple(count / whole if whole else 0.0 for count in self.steps.slots)
