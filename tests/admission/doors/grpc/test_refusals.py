"""Refusals on the wire: the hint is never 0, and every detail can be read by a machine."""

from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from surgetank.admission.doors.grpc.refusals import pushback_ms, sentence, trailers
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Reason

FULL = Refusal(
    Outcome.OVERLOAD,
    Reason.QUEUE_REQUESTS,
    "the queue is full",
    measured=256,
    limit=255.5,
    limit_name="queue_requests",
    retry_after=0.4,
)


def details(refusal: Refusal, pushback: int) -> tuple[status_pb2.Status, dict[str, Any]]:
    """The status in the trailers and its details by type."""
    data = dict(trailers(refusal, "r1", pushback))["grpc-status-details-bin"]
    assert isinstance(data, bytes)
    status = status_pb2.Status.FromString(data)
    found: dict[str, Any] = {}
    for packed in status.details:
        kind = getattr(error_details_pb2, packed.TypeName().rpartition(".")[2])
        found[kind.__name__] = kind.FromString(packed.value)
    return status, found


@given(
    retry_after=st.none() | st.floats(min_value=0, max_value=1e6),
    time_left=st.none() | st.floats(min_value=-10, max_value=1e6),
)
def test_pushback_is_never_zero(retry_after: float | None, time_left: float | None) -> None:
    refusal = Refusal(Outcome.OVERLOAD, Reason.PREDICTED_WAIT, "busy", retry_after=retry_after)
    pushback = pushback_ms(refusal, time_left)
    assert pushback == -1 or pushback >= 50
    if time_left is not None:
        assert pushback < 1000 * time_left or pushback == -1


@pytest.mark.parametrize(
    ("retry_after", "time_left", "expected"),
    [
        (None, None, -1),
        (0.0, None, 50),
        (0.0501, None, 51),
        (0.4, None, 400),
        (0.4, 0.5, 400),
        (0.4, 0.4, -1),
        (0.4, 0.3, -1),
    ],
)
def test_pushback(retry_after: float | None, time_left: float | None, expected: int) -> None:
    refusal = Refusal(Outcome.OVERLOAD, Reason.PREDICTED_WAIT, "busy", retry_after=retry_after)
    assert pushback_ms(refusal, time_left) == expected


def test_a_wait_is_told_in_every_form() -> None:
    named = dict(trailers(FULL, "r1", 400))
    assert named["grpc-retry-pushback-ms"] == "400"
    assert named["x-surgetank-reason"] == "queue_requests"
    status, found = details(FULL, 400)
    assert status.code == 8  # RESOURCE_EXHAUSTED
    assert found["RetryInfo"].retry_delay.ToMilliseconds() == 400
    info = found["ErrorInfo"]
    assert (info.reason, info.domain) == ("QUEUE_REQUESTS", "surgetank")
    assert dict(info.metadata) == {
        "request_id": "r1",
        "measured": "256",
        "limit": "255.5",
        "limit_name": "queue_requests",
    }
    assert "QuotaFailure" not in found
    assert (
        sentence(FULL, "r1", 400)
        == "the queue is full [reason: queue_requests; request: r1; retry after 400 ms]"
    )


def test_a_quota_names_whose() -> None:
    quota = Refusal(Outcome.QUOTA, Reason.TENANT_QUOTA, "2 of 2 used", limit_name="requests")
    (violation,) = details(quota, -1)[1]["QuotaFailure"].violations
    assert (violation.subject, violation.description) == ("requests", "2 of 2 used")


def test_no_retry_has_no_delay() -> None:
    refusal = Refusal(Outcome.RETRY_BUDGET, Reason.RETRY_BUDGET, "spent")
    assert dict(trailers(refusal, "r1", -1))["grpc-retry-pushback-ms"] == "-1"
    assert list(details(refusal, -1)[1]) == ["ErrorInfo"]
    assert "do not retry" in sentence(refusal, "r1", -1)


def test_long_messages_stay_within_a_clients_metadata_limit() -> None:
    refusal = Refusal(Outcome.QUOTA, Reason.TENANT_QUOTA, "é" * 100_000)
    size = sum(len(value) for _, value in trailers(refusal, "r1", -1))
    assert size + 3 * len(sentence(refusal, "r1", -1)) < 8192
