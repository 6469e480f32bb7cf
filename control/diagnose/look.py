"""One look at the service, many of which make a verdict: what is now, and what was counted."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from surgetank.admission.room import Held
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import Outcome, Reason


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals since the start; since() tells a span's."""

    received: int = 0
    admitted: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)  # by the gate
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)  # (slo, good or bad)
    returned: Counter[str] = field(default_factory=Counter)  # retries by obeyed, ignored, none
    output_tokens: int = 0

    def since(self, earlier: "Counts") -> "Counts":
        """What came in between."""
        return Counts(
            self.received - earlier.received,
            self.admitted - earlier.admitted,
            self.refused - earlier.refused,
            self.outcomes - earlier.outcomes,
            self.judged - earlier.judged,
            self.returned - earlier.returned,
            self.output_tokens - earlier.output_tokens,
        )


@dataclass(frozen=True, slots=True)
class Look:
    """The service at `desk.at`."""

    desk: DeskSnapshot
    held: Held | None  # what keeps the next request out of the engine
    counts: Counts


def count(recorder: Recorder) -> Counts:
    """The totals now, out of the metrics' own counters."""
    registry, totals = recorder.registry, recorder.totals()
    admitted, refused = 0, Counter[Reason]()
    for (decision, reason, *_), child in (
        registry.counter("admission_decisions_total").children().items()
    ):
        if decision == "refused":
            refused[Reason(reason)] += int(child.value)
        else:
            admitted += int(child.value)
    judged = registry.counter("slo_events_total").children()
    returned = registry.histogram("retry_backoff_taken_seconds").children()
    tokens = registry.counter("tokens_total").children()
    return Counts(
        received=totals.received,
        admitted=admitted,
        refused=refused,
        outcomes=Counter(totals.outcomes),
        judged=Counter({(slo, result): int(c.value) for (slo, result), c in judged.items()}),
        returned=Counter({advice: taken.read().count for (advice,), taken in returned.items()}),
        output_tokens=int(sum(c.value for (_, kind), c in tokens.items() if kind == "output")),
    )


@dataclass(frozen=True, slots=True)
class Eyes:
    """How to look: three functions of the running parts, so that whoever looks can be tested."""

    snapshot: Callable[[], DeskSnapshot]
    held: Callable[[], Held | None]
    counts: Callable[[], Counts]

    def look(self) -> Look:
        """One look, at one moment."""
        return Look(self.snapshot(), self.held(), self.counts())
