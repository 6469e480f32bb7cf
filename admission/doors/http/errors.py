"""A refusal as the HTTP client sees it: headers, and the body in OpenAI's shape."""

import math

import orjson

from surgetank.admission.outcome import STATUS, Refusal
from surgetank.telemetry.vocabulary import Reason

# Reasons that OpenAI has a code of its own for, which its clients look at.
_CODES = {
    Reason.UNKNOWN_MODEL: "model_not_found",
    Reason.NEVER_FITS_CONTEXT: "context_length_exceeded",
    Reason.API_KEY: "invalid_api_key",
}
_MIN_RETRY_MS = 50


def error_headers(refusal: Refusal) -> list[tuple[str, str]]:
    """Whether and when to retry, and the reason."""
    headers = [("x-surgetank-reason", str(refusal.reason))]
    if refusal.reason is Reason.API_KEY:
        headers.append(("www-authenticate", "Bearer"))
    wait = refusal.retry_after
    if wait is None:
        return [*headers, ("x-should-retry", "false")]
    return [
        *headers,
        ("x-should-retry", "true"),
        ("retry-after-ms", str(max(_MIN_RETRY_MS, round(wait * 1000)))),
        ("retry-after", str(max(1, math.ceil(wait)))),
    ]


def error_body(refusal: Refusal) -> bytes:
    """{"error": {...}}: what OpenAI's clients read, and what an operator wants to know."""
    error = {
        "message": refusal.message,
        "type": STATUS[refusal.outcome].error_type,
        "param": refusal.param,
        "code": _CODES.get(refusal.reason, str(refusal.reason)),
        "outcome": str(refusal.outcome),
        "reason": str(refusal.reason),
        "measured": refusal.measured,
        "limit": refusal.limit,
        "limit_name": refusal.limit_name or None,
        "retry_after": refusal.retry_after,
    }
    return orjson.dumps({"error": error})
