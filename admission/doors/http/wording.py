"""How an API tells a refusal: most paths in OpenAI's words, Anthropic's messages in Anthropic's.

Anthropic's clients know 529, overloaded_error, for a service that has too much to do, and 429,
rate_limit_error, for a caller who has used up its own part. They retry either alike, and as our
headers say; a stream's error is an event of that name, after which it just ends.

Source: Anthropic's API reference, errors and streaming; anthropic 2.14 for Python.
"""

from typing import Protocol

import orjson

from surgetank.admission.doors.http.errors import error_body, error_headers
from surgetank.admission.doors.http.render import DONE
from surgetank.admission.outcome import STATUS, Refusal
from surgetank.telemetry.vocabulary import Reason

MESSAGES = "/v1/messages"  # and what lies below it
_OVERLOADED = "overloaded_error"
# Where Anthropic's word is another than OpenAI's.
_TYPES = {
    "unavailable_error": "api_error",
    "server_error": "api_error",
    "cancelled": "api_error",
}
_TOO_LARGE = {Reason.BODY_TOO_LARGE: "request_too_large"}


class Wording(Protocol):
    """One API's way. `request_id` is what the client may ask after."""

    def status(self, refusal: Refusal) -> int:
        """The HTTP status."""

    def headers(self, refusal: Refusal, request_id: str) -> list[tuple[str, str]]:
        """Whether and when to retry, and the reason."""

    def body(self, refusal: Refusal, request_id: str) -> bytes:
        """The whole answer."""

    def last_event(self, refusal: Refusal, request_id: str) -> bytes:
        """What ends a stream that has begun."""


class OpenAiWording:
    """Implements Wording."""

    def status(self, refusal: Refusal) -> int:
        return refusal.http_status

    def headers(self, refusal: Refusal, request_id: str) -> list[tuple[str, str]]:
        return error_headers(refusal)

    def body(self, refusal: Refusal, request_id: str) -> bytes:
        return error_body(refusal)

    def last_event(self, refusal: Refusal, request_id: str) -> bytes:
        return b"data: " + error_body(refusal) + b"\n\n" + DONE


class AnthropicWording:
    """Implements Wording. Its clients show `details.error_code` as the error's code."""

    def status(self, refusal: Refusal) -> int:
        return 529 if _type(refusal) == _OVERLOADED else refusal.http_status

    def headers(self, refusal: Refusal, request_id: str) -> list[tuple[str, str]]:
        return [*error_headers(refusal), ("request-id", request_id)]

    def body(self, refusal: Refusal, request_id: str) -> bytes:
        details = {
            "error_code": str(refusal.reason),
            "outcome": str(refusal.outcome),
            "measured": refusal.measured,
            "limit": refusal.limit,
            "limit_name": refusal.limit_name or None,
            "retry_after": refusal.retry_after,
            "param": refusal.param,
        }
        error = {"type": _type(refusal), "message": refusal.message, "details": details}
        return orjson.dumps({"type": "error", "error": error, "request_id": request_id})

    def last_event(self, refusal: Refusal, request_id: str) -> bytes:
        return b"event: error\ndata: " + self.body(refusal, request_id) + b"\n\n"


OPENAI: Wording = OpenAiWording()
ANTHROPIC: Wording = AnthropicWording()


def wording_of(path: str) -> Wording:
    """That of the path."""
    return ANTHROPIC if f"{path}/".startswith(f"{MESSAGES}/") else OPENAI


def _type(refusal: Refusal) -> str:
    own = STATUS[refusal.outcome].error_type
    return _TOO_LARGE.get(refusal.reason) or _TYPES.get(own, own)
