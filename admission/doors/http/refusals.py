"""The door's own refusals: what goes beyond one of its limits, each with measure and limit."""

from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Reason


def no_http() -> Refusal:
    """The first byte begins no method: TLS, most often."""
    message = "no HTTP request begins so; this port speaks plain HTTP/1.1, no TLS"
    return Refusal(Outcome.INVALID, Reason.BAD_REQUEST, message)


def headers_too_large(measured: int, limit: int) -> Refusal:
    """The request line and headers go on beyond their limit."""
    message = f"the headers have {measured} bytes or more; allowed: up to {limit}"
    reason = Reason.HEADERS_TOO_LARGE
    return Refusal(Outcome.INVALID, reason, message, measured, limit, "http.max_header_bytes")


def body_too_large(measured: int, limit: int) -> Refusal:
    """The body is, or announces itself, beyond its limit."""
    message = f"the body has {measured} bytes; allowed: up to {limit}"
    reason = Reason.BODY_TOO_LARGE
    return Refusal(Outcome.INVALID, reason, message, measured, limit, "http.max_body_bytes")


def headers_too_late(seconds: float) -> Refusal:
    """The headers did not arrive in time."""
    message = f"the headers did not arrive within {seconds:g} s"
    reason, name = Reason.HEADER_TIMEOUT, "http.header_timeout"
    return Refusal(Outcome.INVALID, reason, message, limit=seconds, limit_name=name)


def body_too_late(seconds: float) -> Refusal:
    """The body did not arrive in time."""
    message = f"the body did not arrive within {seconds:g} s"
    reason, name = Reason.BODY_TIMEOUT, "http.body_timeout"
    return Refusal(Outcome.INVALID, reason, message, limit=seconds, limit_name=name)


def too_many_bytes(measured: int, limit: int) -> Refusal:
    """All clients together have sent too much of bodies that are not complete."""
    message = "too many bytes of unfinished requests are held; try again"
    reason = Reason.BUFFERED_BYTES
    return Refusal(Outcome.OVERLOAD, reason, message, measured, limit, "http.max_buffered_bytes")


def too_many_connections(measured: int, limit: int, name: str) -> Refusal:
    """One connection more than the limit called `name`."""
    message = f"{measured} connections are open; allowed: {limit}"
    reason = Reason.CONNECTIONS
    return Refusal(Outcome.OVERLOAD, reason, message, measured, limit, f"http.{name}")


def stopping() -> Refusal:
    """The server stops, and the request with it."""
    return Refusal(Outcome.DRAINING, Reason.OPERATOR, "the server is stopping")
