"""Policies that tests put on stage."""

from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.policy import Admission
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Outcome, Reason

NO = Refusal(Outcome.OVERLOAD, Reason.IN_FLIGHT, "no", 2.0, 1.0, "probe")


class Alternating:
    """Admits every other request that it is asked about."""

    def __init__(self) -> None:
        self.asked = 0
        self.heard: list[Ticket] = []

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        self.asked += 1
        return Admission() if self.asked % 2 else NO

    def ended(self, ticket: Ticket, now: float) -> None:
        self.heard.append(ticket)


class Refusing(Alternating):
    """Admits nobody."""

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        self.asked += 1
        return NO


class Broken(Alternating):
    """Raises."""

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        self.asked += 1
        raise ZeroDivisionError("no traffic")
