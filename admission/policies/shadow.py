"""A policy in the shadow: asked about every request and obeyed for none."""

from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass, field

from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.judged import Judged
from surgetank.admission.policies.part import Part
from surgetank.admission.policies.policy import Admission
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.family import Counter
from surgetank.telemetry.vocabulary import Reason

Verdict = Admission | Refusal
Both = tuple[bool, bool]  # admitted by the one that decided; would have been by the shadow
BOTH: tuple[Both, ...] = ((True, True), (True, False), (False, True), (False, False))


@dataclass(slots=True)
class Seen:
    """What a shadow said, beside what was done."""

    decisions: Tally[Both] = field(default_factory=Tally)
    would_refuse: Tally[Reason] = field(default_factory=Tally)  # of what was admitted
    would_admit: Tally[Reason] = field(default_factory=Tally)  # of what was refused, why it was
    refused_ended: Tally[Judged] = field(default_factory=Tally)  # how those it would refuse ended
    admitted_ended: Tally[Judged] = field(default_factory=Tally)  # and those it would admit too


class Shadow:
    """Holds no request longer than the desk does."""

    def __init__(self, part: Part, counters: Mapping[Both, Counter]) -> None:
        """`counters`: where each pair of decisions is counted."""
        self.part = part
        self.seen = Seen()
        self._counters = counters
        self._pending: dict[Ticket, bool] = {}  # admitted: whether by the shadow, too

    def watch(
        self,
        ticket: Ticket,
        card: ModelCard,
        now: float,
        stalled_for: float | None,
        done: Verdict,
    ) -> None:
        """Ask it as well; `done` is what happens."""
        said = self.part.decide(ticket, card, now, stalled_for)
        if said is None:
            return
        both = isinstance(done, Admission), isinstance(said, Admission)
        self.seen.decisions[both] += 1
        self._counters[both].value += 1
        if isinstance(done, Refusal):
            if isinstance(said, Admission):
                self.seen.would_admit[done.reason] += 1
            return
        self._pending[ticket] = isinstance(said, Admission)
        if isinstance(said, Refusal):
            self.seen.would_refuse[said.reason] += 1

    def ended(self, ticket: Ticket, how: Judged) -> None:
        """A request is over."""
        agreed = self._pending.pop(ticket, None)
        if agreed is not None:
            (self.seen.admitted_ended if agreed else self.seen.refused_ended)[how] += 1
