"""Each outcome's statuses and retry advice: one table for HTTP, gRPC, logs and docs."""

from dataclasses import dataclass
from enum import Enum

import grpc
import msgspec

from surgetank.telemetry.vocabulary import Outcome, Reason


class Advice(Enum):
    """What a refused client should do."""

    NONE = "none"  # not a refusal
    NEVER = "do not retry"
    SLOT = "retry at a scheduled slot"
    REFILL = "retry when the quota has refilled"
    SOON = "retry shortly"


@dataclass(frozen=True)
class Status:
    """How an outcome looks on the wire. `error_type` is OpenAI's word for it."""

    grpc: grpc.StatusCode
    http: int
    advice: Advice
    error_type: str


_G = grpc.StatusCode
STATUS: dict[Outcome, Status] = {
    Outcome.OK: Status(_G.OK, 200, Advice.NONE, ""),
    Outcome.INVALID: Status(_G.INVALID_ARGUMENT, 400, Advice.NEVER, "invalid_request_error"),
    Outcome.UNAUTHENTICATED: Status(_G.UNAUTHENTICATED, 401, Advice.NEVER, "authentication_error"),
    Outcome.DENIED: Status(_G.PERMISSION_DENIED, 403, Advice.NEVER, "permission_error"),
    Outcome.NOT_FOUND: Status(_G.NOT_FOUND, 404, Advice.NEVER, "not_found_error"),
    Outcome.QUOTA: Status(_G.RESOURCE_EXHAUSTED, 429, Advice.REFILL, "rate_limit_error"),
    Outcome.OVERLOAD: Status(_G.RESOURCE_EXHAUSTED, 429, Advice.SLOT, "overloaded_error"),
    Outcome.RETRY_BUDGET: Status(_G.RESOURCE_EXHAUSTED, 429, Advice.NEVER, "overloaded_error"),
    Outcome.INFEASIBLE: Status(_G.DEADLINE_EXCEEDED, 504, Advice.NEVER, "timeout_error"),
    Outcome.EXPIRED: Status(_G.UNAVAILABLE, 503, Advice.SLOT, "overloaded_error"),
    Outcome.EVICTED: Status(_G.UNAVAILABLE, 503, Advice.SLOT, "overloaded_error"),
    Outcome.DRAINING: Status(_G.UNAVAILABLE, 503, Advice.SOON, "unavailable_error"),
    Outcome.BACKEND_DOWN: Status(_G.UNAVAILABLE, 503, Advice.SOON, "unavailable_error"),
    Outcome.CIRCUIT_OPEN: Status(_G.UNAVAILABLE, 503, Advice.SOON, "unavailable_error"),
    Outcome.DEADLINE: Status(_G.DEADLINE_EXCEEDED, 504, Advice.NEVER, "timeout_error"),
    Outcome.CANCELLED: Status(_G.CANCELLED, 499, Advice.NONE, "cancelled"),
    Outcome.INTERNAL: Status(_G.INTERNAL, 500, Advice.NEVER, "server_error"),
}

# Reasons whose HTTP status is more exact than their outcome's.
_HTTP_BY_REASON = {
    Reason.BODY_TOO_LARGE: 413,
    Reason.HEADERS_TOO_LARGE: 431,
    Reason.HEADER_TIMEOUT: 408,
    Reason.BODY_TIMEOUT: 408,
}


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not served: one reason, what was measured, the limit it met, the hint."""

    outcome: Outcome
    reason: Reason
    message: str  # a sentence for the client: what, where, allowed; no prompt text
    measured: float | None = None
    limit: float | None = None
    limit_name: str = ""
    retry_after: float | None = None  # seconds, already jittered, >= 0.05; None = do not retry
    param: str | None = None  # OpenAI's `param`: the offending field

    @property
    def http_status(self) -> int:
        """The HTTP status for this refusal."""
        return _HTTP_BY_REASON.get(self.reason, STATUS[self.outcome].http)

    @property
    def grpc_status(self) -> grpc.StatusCode:
        """The gRPC status for this refusal."""
        return STATUS[self.outcome].grpc


class Refused(Exception):
    """Raised where a request cannot go on; carries the refusal that the door renders."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def invalid(reason: Reason, message: str, param: str | None = None) -> Refused:
    """A client's mistake; never worth a retry."""
    return Refused(Refusal(Outcome.INVALID, reason, message, param=param))
