"""A finished request as spans: SERVER, and under it admission, queue, generate as far as it came.

Made once, from what the ticket kept; nothing is written while the request lives. The parts follow
each other and add up to the whole: arrival to the queue, to the engine, to the last word.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind

from surgetank.admission.doors.http.wording import wording_of
from surgetank.admission.outcome import STATUS, Refusal
from surgetank.admission.ticket import Ticket
from surgetank.telemetry import conventions as names
from surgetank.telemetry.spans import Attributes, context, ended_span
from surgetank.telemetry.tracecontext import SpanId, TraceContext
from surgetank.telemetry.vocabulary import Outcome, Reason

_OPERATIONS = {"/v1/chat/completions": "chat"}  # the others complete a text
_BOUNDARIES = frozenset({"arrived", "queued", "dispatched", *Outcome})  # where spans begin and end


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that is over, with what its ticket does not know."""

    ticket: Ticket
    refusal: Refusal | None
    context: TraceContext
    offset: float  # from the monotonic clock to the wall's, as they stood at its end
    tenants: bool  # may the tenant be named

    @property
    def count(self) -> int:
        """How many spans it will be."""
        return 2 + (self.ticket.queued_at is not None) + (self.ticket.dispatched_at is not None)

    def spans(self, by: Resource, children: Iterable[str]) -> list[ReadableSpan]:
        """The spans, the SERVER one first; `children`: enough new span ids for the others."""
        own = context(self.context.id, state=self._state)
        told = [self._server(by, own)]
        for (name, start, end, attributes), id in zip(self._parts(), children):
            told.append(
                ended_span(
                    by,
                    name,
                    context(SpanId(self.context.id.trace, id), state=self._state),
                    own,
                    start + self.offset,
                    end + self.offset,
                    attributes=attributes,
                    events=self._events(start, end),
                    error=self._error if end == self._end else None,
                )
            )
        return told

    @property
    def _end(self) -> float:
        ended_at = self.ticket.ended_at
        return self.ticket.arrived if ended_at is None else ended_at

    @property
    def _state(self) -> str:
        return "" if self.context.parent is None else self.context.parent.state

    @property
    def _error(self) -> str | None:
        """Ours or the engine's fault, by the rule for servers: a refusal's 4xx is not an error."""
        if self.refusal is None or self.refusal.http_status < 500:
            return None
        return self.refusal.message

    def _server(self, by: Resource, own: SpanContext) -> ReadableSpan:
        ticket, parent, earlier = self.ticket, self.context.parent, self.ticket.earlier
        return ended_span(
            by,
            f"POST {ticket.route}" if ticket.door == "http" else ticket.route,
            own,
            None if parent is None else context(parent.id, remote=True, state=parent.state),
            ticket.arrived + self.offset,
            self._end + self.offset,
            kind=SpanKind.SERVER,
            attributes={**self._protocol(), **_request(ticket, self.tenants)},
            links=() if earlier is None else ((earlier, "retry_of"),),
            error=self._error,
        )

    def _parts(self) -> list[tuple[str, float, float, Attributes]]:
        """Name, start, end and attributes of what it went through, in order."""
        ticket, end = self.ticket, self._end
        queued = ticket.queued_at
        left = ticket.dispatched_at
        admission = end if queued is None else queued
        parts = [("admission", ticket.arrived, admission, _decision(ticket, self.refusal))]
        if queued is not None:
            parts.append(("queue", queued, end if left is None else left, self._leaving()))
        if left is not None:
            parts.append(("generate", left, end, _generation(ticket)))
        return parts

    def _events(self, start: float, end: float) -> tuple[tuple[float, str], ...]:
        """What happened in a part; of two parts that touch, it is the later one's."""
        last = end == self._end
        return tuple(
            (at + self.offset, what)
            for at, what in self.ticket.events
            if start <= at and (at < end or last) and what not in _BOUNDARIES
        )

    def _leaving(self) -> Attributes:
        """How it left the queue, if not for the engine."""
        if self.ticket.dispatched_at is not None:
            return {}
        return _refused(self.refusal)

    def _protocol(self) -> Attributes:
        """What was answered, in the words of the protocol that it came by."""
        ticket, refusal = self.ticket, self.refusal
        error = None if ticket.outcome is Outcome.OK else str(ticket.reason)
        if ticket.door != "http":
            status = STATUS[ticket.outcome or Outcome.INTERNAL].grpc
            return {
                names.RPC_SYSTEM: "grpc",
                names.RPC_METHOD: ticket.route,
                names.RPC_STATUS: status.name,
                names.ERROR_TYPE: error,
            }
        begun = ticket.stream and ticket.first_token_at is not None
        answered: int | None = 200
        if refusal is not None and not begun:
            answered = wording_of(ticket.route).status(refusal)
        if ticket.reason is Reason.CLIENT_GONE and not begun:
            answered = None  # nobody was there to answer
        return {
            names.HTTP_METHOD: "POST",
            names.HTTP_ROUTE: ticket.route,
            names.URL_PATH: ticket.route,
            names.URL_SCHEME: "http",
            names.HTTP_STATUS: answered,
            names.ERROR_TYPE: error,
        }


def _request(ticket: Ticket, tenants: bool) -> Attributes:
    return {
        names.REQUEST_ID: ticket.id,
        names.LANE: str(ticket.lane),
        names.ATTEMPT: ticket.attempt,
        names.PRIORITY: ticket.priority.label,
        names.TENANT: ticket.tenant if tenants and ticket.tenant else None,
        names.OUTCOME: str(ticket.outcome),
        names.REASON: str(ticket.reason),
    }


def _decision(ticket: Ticket, refusal: Refusal | None) -> Attributes:
    """Admitted or refused, and what that rested on."""
    admitted = ticket.queued_at is not None
    found, wait = ticket.found, ticket.wait
    return {
        names.DECISION: "admitted" if admitted else "refused",
        names.LANE: str(ticket.lane),
        names.PREDICTED_WAIT: None if wait is None else wait.seconds,
        names.THRESHOLD: None if found is None else found.threshold,
        names.AHEAD: None if found is None else found.ahead,
        **({names.REASON: "none"} if admitted else _refused(refusal)),
    }


def _refused(refusal: Refusal | None) -> Attributes:
    if refusal is None:
        return {}
    return {
        names.REASON: str(refusal.reason),
        names.MEASURED: refusal.measured,
        names.LIMIT: refusal.limit,
        names.LIMIT_NAME: refusal.limit_name or None,
        names.RETRY_AFTER: refusal.retry_after,
    }


def _generation(ticket: Ticket) -> Attributes:
    """The engine's part, in GenAI's words."""
    first = ticket.first_token_at
    return {
        names.OPERATION: _OPERATIONS.get(ticket.route, "text_completion"),
        names.PROVIDER: "surgetank",
        names.REQUEST_MODEL: ticket.model,
        names.MAX_TOKENS: ticket.max_tokens,
        names.CHOICES: None if ticket.n == 1 else ticket.n,
        names.STREAM: True if ticket.stream else None,
        names.INPUT_TOKENS: ticket.input_tokens,
        names.CACHED_TOKENS: ticket.cached_tokens,
        names.OUTPUT_TOKENS: ticket.output_tokens,
        names.FIRST_CHUNK: None if first is None else first - ticket.arrived,
        names.TPOT: ticket.tpot,
        names.LONGEST_GAP: ticket.longest_gap or None,
        names.BACKEND: ticket.engine or None,
    }
