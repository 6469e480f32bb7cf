"""Whether a request went well, as far as its admission decided it."""

from enum import StrEnum

from surgetank.admission.ticket import Ticket
from surgetank.telemetry.vocabulary import Outcome

_TOO_LATE = frozenset({Outcome.EXPIRED, Outcome.EVICTED, Outcome.DEADLINE})


class Judged(StrEnum):
    """What became of an admitted request. Time per token is the engine's, the same for whoever is
    in it, and would tell nothing of who let the request in: it is not judged here."""

    GOOD = "good"  # answered, its first token within its class's target
    LATE = "late"  # the first token after that, or never while its client waited that long
    OTHER = "other"  # cancelled before, or lost with the engine


def judged(ticket: Ticket, target: float) -> Judged:
    """`target`: of the time to the first token, seconds. The ticket has ended."""
    until = ticket.ended_at if ticket.first_token_at is None else ticket.first_token_at
    late = until is not None and until - ticket.arrived > target
    if late or ticket.outcome in _TOO_LATE:
        return Judged.LATE
    return Judged.GOOD if ticket.outcome is Outcome.OK else Judged.OTHER
