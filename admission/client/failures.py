"""Which failures a retry can cure: of httpx, requests, openai and grpc, importing none of them.

An answer 429, 502, 503 or 529, or gRPC UNAVAILABLE, is worth a retry unless the server says no.
RESOURCE_EXHAUSTED is only when a pushback came with it: grpcio uses the same code for messages that
are too large. A read timeout is not: the work may still go on, and asking again doubles it.
"""

from surgetank.admission.client.hints import NOTHING, Hint, read_hint

RETRIED_STATUS = frozenset({429, 502, 503, 529})
# Exceptions that say the request never arrived, by name: their libraries may not be installed.
_NEVER_ARRIVED = frozenset({"ConnectError", "ConnectTimeout", "ConnectionRefusedError"})
_BROKE_OFF = frozenset({"RemoteProtocolError", "ConnectionResetError", "ReadError", "WriteError"})


def hint_of(failure: object, wall: float) -> Hint | None:
    """The hint in a failure: an exception, or a response that is an error. None: do not retry.

    `wall` is now in seconds since the Unix epoch, for a Retry-After that names a date.
    """
    if callable(getattr(failure, "trailing_metadata", None)):
        return _grpc(failure, wall)
    response = failure if hasattr(failure, "status_code") else getattr(failure, "response", None)
    if hasattr(response, "status_code") and hasattr(response, "headers"):
        return _http(response, wall)
    error = failure
    while isinstance(error, BaseException):
        if type(error).__name__ in _NEVER_ARRIVED | _BROKE_OFF:
            return NOTHING
        error = error.__cause__
    return None


def _http(response: object, wall: float) -> Hint | None:
    status, headers = response.status_code, response.headers  # type: ignore[attr-defined]
    if status < 400:
        return None
    hint = read_hint(headers.items(), wall)
    return hint if hint.retry or status in RETRIED_STATUS else None


def _grpc(error: object, wall: float) -> Hint | None:
    code = error.code().name  # type: ignore[attr-defined]
    hint = read_hint(error.trailing_metadata() or (), wall)  # type: ignore[attr-defined]
    if code == "UNAVAILABLE" or (code == "RESOURCE_EXHAUSTED" and hint.retry):
        return hint
    return None
