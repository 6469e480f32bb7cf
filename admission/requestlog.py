"""One log line for each request, at its end, and few of them when many are refused at once."""

import logging
from dataclasses import dataclass

from surgetank.admission.outcome import Refusal
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.vocabulary import Outcome, Reason

log = logging.getLogger(__name__)

AT_ONCE = 10  # lines of one reason in a period; more are counted and told later
PERIOD = 10.0  # seconds


@dataclass(slots=True)
class _Period:
    since: float
    lines: int = 0
    suppressed: int = 0


class RequestLog:
    """Served requests are told at level debug, the others at info, our own faults at warning.

    Of each reason only the first few in a period are told; how many were not is told with the next
    one, or at the end.
    """

    def __init__(self) -> None:
        self._periods: dict[Reason, _Period] = {}

    def ended(self, ticket: Ticket, refusal: Refusal | None, now: float) -> None:
        """A request is over; `now` is monotonic."""
        level = _level(ticket.outcome)
        if not log.isEnabledFor(level):
            return
        extra = _fields(ticket, refusal)
        if refusal is not None:
            period = self._period(refusal.reason, now)
            if period.lines >= AT_ONCE:
                period.suppressed += 1
                return
            period.lines += 1
            if period.suppressed:
                extra["suppressed"] = period.suppressed
                period.suppressed = 0
        log.log(level, "request served" if refusal is None else refusal.message, extra=extra)

    def close(self) -> None:
        """Tell what was held back and nothing followed."""
        for reason, period in self._periods.items():
            if period.suppressed:
                held_back = {"reason": str(reason), "suppressed": period.suppressed}
                log.info("more requests ended so", extra=held_back)
        self._periods.clear()

    def _period(self, reason: Reason, now: float) -> _Period:
        period = self._periods.setdefault(reason, _Period(now))
        if now - period.since >= PERIOD:
            period.since, period.lines = now, 0
        return period


def _level(outcome: Outcome | None) -> int:
    if outcome is Outcome.OK:
        return logging.DEBUG
    return logging.WARNING if outcome is Outcome.INTERNAL else logging.INFO


def _fields(ticket: Ticket, refusal: Refusal | None) -> dict[str, str | int | float | None]:
    ended_at = ticket.arrived if ticket.ended_at is None else ticket.ended_at
    first = ticket.first_token_at
    fields: dict[str, str | int | float | None] = {
        **ticket.log_fields,
        "door": ticket.door,
        "outcome": str(ticket.outcome),
        "lane": str(ticket.lane),
        "priority": ticket.priority.label,
        "seconds": round(ended_at - ticket.arrived, 6),
    }
    if refusal is not None:
        fields |= {"reason": str(ticket.reason), "attempt": ticket.attempt}
    if ticket.dispatched_at is not None:
        fields |= {
            "prompt_tokens": ticket.input_tokens,
            "output_tokens": ticket.output_tokens,
            "ttft": None if first is None else round(first - ticket.arrived, 6),
        }
    if ticket.engine:
        fields["backend"] = ticket.engine
    if ticket.turned_away:
        fields["moved_from"] = ", ".join(ticket.turned_away)
    return fields
