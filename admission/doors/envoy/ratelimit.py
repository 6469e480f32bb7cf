"""Envoy's rate limit service: one question, one answer at once, and no slot held.

What the gate judges by its own means holds: tenant quotas, retry budget, classes, brown-out, drain,
KV memory as the engine tells it. What needs to know which requests run does not, since nobody says
when one ends; and nothing can wait, since Envoy wants the answer within milliseconds.

Source: Envoy's rls.proto, v1.40.
"""

from typing import Any

import grpc

from surgetank.admission.doors.carried import BlindOrder, Carriage, Carried
from surgetank.admission.doors.envoy import wire_pb2 as pb
from surgetank.admission.doors.grpc.exchange import RpcContext, address
from surgetank.admission.doors.http.errors import error_body, error_headers
from surgetank.admission.doors.http.relay_routes import ALIAS
from surgetank.admission.outcome import Refusal
from surgetank.engine.backends.remote.api import Forward
from surgetank.telemetry.vocabulary import Outcome, Reason

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
# Short names of descriptor entries; any other is taken for the header that it is called like.
HEADERS = {
    "tenant": "x-surgetank-tenant",
    "class": "x-surgetank-priority",
    "attempt": "x-surgetank-attempt",
}
_Code = pb.RateLimitResponse


class _Question:
    """Implements carried.CarrierDoor for what is answered on the spot."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = None

    def on_go(self, url: str, request: Forward) -> None:
        """Carried.gone tells."""

    def on_over(self, refusal: Refusal | None) -> None:
        self.refusal = refusal


class RateLimit:
    """The service."""

    def __init__(self, carriage: Carriage) -> None:
        self._carriage = carriage

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """For Server.add_generic_rpc_handlers."""
        method = grpc.unary_unary_rpc_method_handler(
            self.should_rate_limit,
            pb.RateLimitRequest.FromString,
            pb.RateLimitResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"ShouldRateLimit": method})

    async def should_rate_limit(
        self, request: pb.RateLimitRequest, context: RpcContext
    ) -> pb.RateLimitResponse:
        """All descriptors together describe one request."""
        entries = {
            entry.key.lower(): entry.value
            for descriptor in request.descriptors
            for entry in descriptor.entries
        }
        refusal, request_id = self._judge(entries, _hits(request), address(context.peer()))
        code = _Code.OK if refusal is None else _Code.OVER_LIMIT
        answer = pb.RateLimitResponse(overall_code=code)
        for _ in request.descriptors:
            answer.statuses.add(code=code)
        if refusal is not None:
            headers = [("x-request-id", request_id), *error_headers(refusal)]
            headers.append(("content-type", "application/json"))
            for name, value in headers:
                answer.response_headers_to_add.add(key=name, value=value)
            answer.raw_body = error_body(refusal)
        return answer

    def _judge(self, entries: dict[str, str], hits: int, peer: str) -> tuple[Refusal | None, str]:
        headers = [(HEADERS.get(name, name), value) for name, value in entries.items()]
        question, carriage = _Question(), self._carriage
        carried = Carried(carriage, question, "envoy", headers, peer, SERVICE)
        ticket = carried.ticket
        ticket.hits = hits
        if ticket.barred is not None:
            carried.refuse(ticket.barred)
            return question.refusal, ticket.id
        carried.ask(
            BlindOrder(
                path=SERVICE,
                request_id=ticket.id,
                prompt_tokens=_count(entries.get("prompt_tokens"), 1),
                max_tokens=_count(entries.get("max_tokens"), carriage.assumed_tokens),
                model=entries.get("model", ALIAS),
            )
        )
        if carried.gone:
            carried.done()
        else:  # it would have to wait
            carried.abandon(Outcome.OVERLOAD, Reason.IN_FLIGHT)
        return question.refusal, ticket.id


def _hits(request: pb.RateLimitRequest) -> int:
    """What it counts: the most that a descriptor says, else what the request says, else one."""
    said = [each.hits_addend.value for each in request.descriptors if each.HasField("hits_addend")]
    return max(said) if said else request.hits_addend or 1


def _count(text: str | None, default: int) -> int:
    """A positive number of tokens, or the default."""
    return int(text) if text and text.isascii() and text.isdigit() and int(text) else default
