"""A refusal's hints in HTTP's words: never zero, never less than what was advised."""

import json

import pytest

from surgetank.admission.doors.http.errors import error_body, error_headers
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Reason


def refusal(retry_after: float | None) -> Refusal:
    message, reason = "the queue is full", Reason.QUEUE_REQUESTS
    return Refusal(Outcome.OVERLOAD, reason, message, 65, 64, "queue_requests", retry_after)


@pytest.mark.parametrize(
    ("advised", "milliseconds", "seconds"),
    [(0.001, "50", "1"), (0.05, "50", "1"), (0.7004, "700", "1"), (1.2, "1200", "2")],
)
def test_a_hint_in_milliseconds_and_in_whole_seconds(
    advised: float, milliseconds: str, seconds: str
) -> None:
    assert dict(error_headers(refusal(advised))) == {
        "x-surgetank-reason": "queue_requests",
        "x-should-retry": "true",
        "retry-after-ms": milliseconds,
        "retry-after": seconds,
    }


def test_no_hint_means_do_not_retry() -> None:
    assert dict(error_headers(refusal(None))) == {
        "x-surgetank-reason": "queue_requests",
        "x-should-retry": "false",
    }


def test_the_body_tells_reason_measure_and_limit() -> None:
    assert json.loads(error_body(refusal(1.2)))["error"] == {
        "message": "the queue is full",
        "type": "overloaded_error",
        "param": None,
        "code": "queue_requests",
        "outcome": "overload",
        "reason": "queue_requests",
        "measured": 65,
        "limit": 64,
        "limit_name": "queue_requests",
        "retry_after": 1.2,
    }
