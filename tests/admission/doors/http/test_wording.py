"""Refusals in Anthropic's words on Anthropic's path, and in OpenAI's elsewhere."""

import json

import pytest

from surgetank.admission.doors.http.wording import ANTHROPIC, OPENAI, wording_of
from surgetank.admission.outcome import STATUS, Refusal
from surgetank.telemetry.vocabulary import Outcome, Reason

OVER = Refusal(
    Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "the queue is full", 65, 64, "queue_requests", 1.2
)
# By outcome: the status and the type that Anthropic's clients are told.
TOLD = {
    Outcome.INVALID: (400, "invalid_request_error"),
    Outcome.UNAUTHENTICATED: (401, "authentication_error"),
    Outcome.DENIED: (403, "permission_error"),
    Outcome.NOT_FOUND: (404, "not_found_error"),
    Outcome.QUOTA: (429, "rate_limit_error"),
    Outcome.OVERLOAD: (529, "overloaded_error"),
    Outcome.RETRY_BUDGET: (529, "overloaded_error"),
    Outcome.INFEASIBLE: (504, "timeout_error"),
    Outcome.EXPIRED: (529, "overloaded_error"),
    Outcome.EVICTED: (529, "overloaded_error"),
    Outcome.DRAINING: (503, "api_error"),
    Outcome.BACKEND_DOWN: (503, "api_error"),
    Outcome.CIRCUIT_OPEN: (503, "api_error"),
    Outcome.DEADLINE: (504, "timeout_error"),
    Outcome.CANCELLED: (499, "api_error"),
    Outcome.INTERNAL: (500, "api_error"),
}


def test_every_outcome_but_ok_is_told() -> None:
    assert TOLD.keys() == STATUS.keys() - {Outcome.OK}


@pytest.mark.parametrize("outcome", TOLD)
def test_anthropics_status_and_type(outcome: Outcome) -> None:
    refusal = Refusal(outcome, Reason.OPERATOR, "why")
    body = json.loads(ANTHROPIC.body(refusal, "r-1"))
    assert (ANTHROPIC.status(refusal), body["error"]["type"]) == TOLD[outcome]


def test_a_body_that_is_too_large_has_a_type_of_its_own() -> None:
    refusal = Refusal(Outcome.INVALID, Reason.BODY_TOO_LARGE, "too large")
    assert ANTHROPIC.status(refusal) == 413
    assert json.loads(ANTHROPIC.body(refusal, "r-1"))["error"]["type"] == "request_too_large"


def test_anthropics_body_tells_reason_measure_and_limit() -> None:
    assert json.loads(ANTHROPIC.body(OVER, "r-1")) == {
        "type": "error",
        "error": {
            "type": "overloaded_error",
            "message": "the queue is full",
            "details": {
                "error_code": "queue_requests",
                "outcome": "overload",
                "measured": 65,
                "limit": 64,
                "limit_name": "queue_requests",
                "retry_after": 1.2,
                "param": None,
            },
        },
        "request_id": "r-1",
    }


def test_our_hints_are_the_same_and_the_id_has_anthropics_name_too() -> None:
    ours, theirs = OPENAI.headers(OVER, "r-1"), ANTHROPIC.headers(OVER, "r-1")
    assert theirs == [*ours, ("request-id", "r-1")]
    assert dict(ours)["retry-after-ms"] == "1200"


def test_the_last_event_of_a_stream() -> None:
    assert OPENAI.last_event(OVER, "r-1") == (
        b"data: " + OPENAI.body(OVER, "r-1") + b"\n\ndata: [DONE]\n\n"
    )
    assert ANTHROPIC.last_event(OVER, "r-1") == (
        b"event: error\ndata: " + ANTHROPIC.body(OVER, "r-1") + b"\n\n"
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/messages", ANTHROPIC),
        ("/v1/messages/count_tokens", ANTHROPIC),
        ("/v1/chat/completions", OPENAI),
        ("/v1/responses", OPENAI),
        ("", OPENAI),
    ],
)
def test_the_path_decides(path: str, words: object) -> None:
    assert wording_of(path) is words
