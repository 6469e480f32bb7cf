"""Each fact lands in its metric once, and what was received is what ended plus what has not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgetank.telemetry.family import HistogramReading
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.tracecontext import SpanId
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, QueueExit, Reason


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(Registry(Process.SIDECAR, SloTargets(ttft=1.0, tpot=0.1)), ["smol"])


def nonzero(recorder: Recorder, name: str) -> dict[tuple[str, ...], float]:
    """A counter's or gauge's series that are not 0."""
    (reading,) = [found for found in recorder.registry.read() if found.spec.name == name]
    return {
        key: value
        for key, value in reading.samples.items()
        if not isinstance(value, HistogramReading) and value
    }


def observed(recorder: Recorder, name: str, *labels: str) -> tuple[int, float]:
    """A histogram's count and sum."""
    reading = recorder.registry.histogram(name).at(*labels).read()
    return reading.count, round(reading.sum, 9)


def end(recorder: Recorder, outcome: Outcome, reason: Reason, model: str = "smol") -> None:
    recorder.received(Lane.FIRST)
    recorder.ended(
        model=model,
        outcome=outcome,
        reason=reason,
        lane=Lane.FIRST,
        priority=Priority.DEFAULT,
        duration=0.5,
    )


LANES = st.sampled_from(Lane)
EVENTS = st.lists(
    st.tuples(
        LANES, st.one_of(st.none(), st.sampled_from(Outcome)), st.sampled_from(["smol", "", "x"])
    )
)


@given(EVENTS)
def test_received_equals_outcomes_plus_in_flight(
    events: list[tuple[Lane, Outcome | None, str]],
) -> None:
    """None lets one more request in; an outcome ends the oldest one of its lane, if any."""
    recorder = Recorder(Registry(Process.SIDECAR), ["smol"])
    open_requests = dict.fromkeys(Lane, 0)
    received = 0
    for lane, outcome, model in events:
        if outcome is None:
            recorder.received(lane)
            open_requests[lane] += 1
            received += 1
        elif open_requests[lane]:
            recorder.ended(
                model=model,
                outcome=outcome,
                reason=Reason.NONE,
                lane=lane,
                priority=Priority.BATCH,
                duration=0.1,
            )
            open_requests[lane] -= 1
        totals = recorder.totals()
        assert totals.received == received
        assert totals.received == sum(totals.outcomes.values()) + totals.in_flight
        assert totals.in_flight == sum(open_requests.values())
    in_flight = {(lane.value,): count for lane, count in open_requests.items() if count}
    assert nonzero(recorder, "requests_in_flight") == in_flight


def test_an_end_is_counted_by_outcome_and_by_cause(recorder: Recorder) -> None:
    end(recorder, Outcome.OK, Reason.NONE)
    end(recorder, Outcome.OVERLOAD, Reason.QUEUE_TOKENS)
    end(recorder, Outcome.INVALID, Reason.BAD_REQUEST, model="")
    end(recorder, Outcome.OVERLOAD, Reason.QUEUE_TOKENS, model="gpt-99")
    end(recorder, Outcome.NOT_FOUND, Reason.UNKNOWN_MODEL, model="")
    assert nonzero(recorder, "requests_total") == {
        ("smol", "ok", "first", "default"): 1,
        ("smol", "overload", "first", "default"): 1,
        ("unknown", "invalid", "first", "default"): 1,
        ("other", "overload", "first", "default"): 1,
        ("other", "not_found", "first", "default"): 1,
    }
    assert nonzero(recorder, "request_failures_total") == {
        ("queue_tokens",): 2,
        ("bad_request",): 1,
        ("unknown_model",): 1,
    }
    assert nonzero(recorder, "telemetry_label_overflow_total") == {("model",): 2}
    assert observed(recorder, "request_duration_seconds", "smol", "default") == (2, 1.0)


@pytest.mark.parametrize(
    ("outcome", "judged"),
    [
        (Outcome.OK, {("availability", "good"): 1}),
        (Outcome.INTERNAL, {("availability", "bad"): 1}),
        (Outcome.BACKEND_DOWN, {("availability", "bad"): 1}),
        (Outcome.DEADLINE, {("availability", "bad"): 1}),
        (Outcome.OVERLOAD, {}),
        (Outcome.EXPIRED, {}),
        (Outcome.INVALID, {}),
        (Outcome.CANCELLED, {}),
    ],
)
def test_availability_judges_neither_our_refusals_nor_clients_mistakes(
    recorder: Recorder, outcome: Outcome, judged: dict[tuple[str, ...], float]
) -> None:
    end(recorder, outcome, Reason.NONE)
    assert nonzero(recorder, "slo_events_total") == judged


def test_latencies_are_judged_against_their_targets(recorder: Recorder) -> None:
    recorder.completed(model="smol", tpot=0.1, ttft=1.0)
    recorder.completed(model="smol", tpot=0.11, ttft=1.01)
    recorder.completed(model="smol", tpot=None, ttft=0.2)
    assert nonzero(recorder, "slo_events_total") == {
        ("tpot", "good"): 1,
        ("tpot", "bad"): 1,
        ("ttft", "good"): 2,
        ("ttft", "bad"): 1,
    }
    assert observed(recorder, "request_time_per_output_token_seconds", "smol") == (2, 0.21)


def test_the_queue_is_empty_again_after_each_leaves(recorder: Recorder) -> None:
    recorder.enqueued(lane=Lane.FIRST, priority=Priority.CRITICAL, tokens=30)
    recorder.enqueued(lane=Lane.RETRY, priority=Priority.CRITICAL, tokens=12)
    assert nonzero(recorder, "queue_tokens") == {("critical",): 42}
    assert nonzero(recorder, "queue_requests") == {
        ("first", "critical"): 1,
        ("retry", "critical"): 1,
    }
    recorder.dequeued(
        lane=Lane.FIRST,
        priority=Priority.CRITICAL,
        tokens=30,
        wait=0.25,
        how=QueueExit.DISPATCHED,
    )
    recorder.dequeued(
        lane=Lane.RETRY, priority=Priority.CRITICAL, tokens=12, wait=4.0, how=QueueExit.EXPIRED
    )
    assert nonzero(recorder, "queue_requests") == {}
    assert nonzero(recorder, "queue_tokens") == {}
    assert observed(recorder, "queue_wait_seconds", "critical", "dispatched") == (1, 0.25)
    assert observed(recorder, "queue_wait_seconds", "critical", "expired") == (1, 4.0)


def test_tokens_and_the_gaps_between_them(recorder: Recorder) -> None:
    recorder.input_tokens(model="smol", computed=20, cached=16)
    recorder.first_token(model="smol", priority=Priority.BATCH, ttft=0.3)
    recorder.output_tokens("smol", 1)
    recorder.output_tokens("smol", 1, gap=0.02)
    recorder.output_tokens("smol", 3, gap=0.09)
    assert nonzero(recorder, "tokens_total") == {
        ("smol", "input"): 20,
        ("smol", "input_cached"): 16,
        ("smol", "output"): 5,
    }
    assert observed(recorder, "inter_token_latency_seconds", "smol") == (4, 0.11)
    assert observed(recorder, "request_time_to_first_token_seconds", "smol", "batch") == (1, 0.3)


def test_decisions_retries_advice_and_limits(recorder: Recorder) -> None:
    recorder.decided(
        admitted=True, reason=Reason.NONE, lane=Lane.FIRST, priority=Priority.SHEDDABLE
    )
    recorder.decided(
        admitted=False, reason=Reason.QUEUE_REQUESTS, lane=Lane.RETRY, priority=Priority.DEFAULT
    )
    recorder.retry_arrival(attempt=0, detected_by="")
    recorder.retry_arrival(attempt=7, detected_by="x-stainless-retry-count")
    recorder.retry_arrival(attempt=1, detected_by="x-made-up")
    recorder.advised(0.4)
    recorder.limit_changed(limit="queue_tokens", direction="down", cause="expiry")
    assert nonzero(recorder, "admission_decisions_total") == {
        ("admitted", "none", "first", "sheddable"): 1,
        ("refused", "queue_requests", "retry", "default"): 1,
    }
    assert nonzero(recorder, "retry_arrivals_total") == {
        ("0", "none"): 1,
        ("3plus", "x-stainless-retry-count"): 1,
        ("1", "other"): 1,
    }
    assert observed(recorder, "retry_backoff_advised_seconds") == (1, 0.4)
    assert nonzero(recorder, "limit_changes_total") == {("queue_tokens", "down", "expiry"): 1}


def test_a_model_that_comes_later_gets_its_own_label(recorder: Recorder) -> None:
    recorder.allow_model("late")
    end(recorder, Outcome.OK, Reason.NONE, model="late")
    assert nonzero(recorder, "requests_total") == {("late", "ok", "first", "default"): 1}


def test_what_was_turned_away_unread_was_not_received(recorder: Recorder) -> None:
    told = [
        Reason.BAD_REQUEST,
        Reason.HEADERS_TOO_LARGE,
        Reason.HEADER_TIMEOUT,
        Reason.CONNECTIONS,
        Reason.CONNECTIONS,
    ]
    for reason in told:
        recorder.unread(reason)
    assert nonzero(recorder, "http_unread_requests_total") == {
        ("bad_request",): 1,
        ("headers_too_large",): 1,
        ("header_timeout",): 1,
        ("connections",): 2,
    }
    assert recorder.totals().received == 0


@pytest.mark.parametrize(
    ("model", "reason", "label"),
    [
        ("", Reason.UNKNOWN_MODEL, "other"),
        ("", Reason.BAD_REQUEST, "unknown"),
        ("tiny", Reason.QUEUE_REQUESTS, "tiny"),
    ],
)
def test_an_example_stands_where_its_request_was_counted(
    recorder: Recorder, model: str, reason: Reason, label: str
) -> None:
    recorder.allow_model("tiny")
    which: dict[str, Any] = {"model": model, "reason": reason, "priority": Priority.DEFAULT}
    recorder.received(Lane.FIRST)
    recorder.ended(**which, outcome=Outcome.NOT_FOUND, lane=Lane.FIRST, duration=0.003)
    nothing: dict[str, Any] = dict.fromkeys(("wait", "ttft", "tpot", "gap"))
    span = SpanId("1" * 32, "2" * 16)
    recorder.exemplify(**which, span=span, at=1.0, duration=0.003, **nothing)
    (durations,) = (
        each.samples
        for each in recorder.registry.read()
        if each.spec.name == "request_duration_seconds"
    )
    shown = {
        labels: (reading.counts[0], [each.span for each in reading.exemplars if each])
        for labels, reading in durations.items()
        if isinstance(reading, HistogramReading) and reading.exemplars
    }
    assert shown == {(label, "default"): (1, [span])}
