"""One line for each request with its ids, and no more than a few of a kind in a storm."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from surgetank.admission.outcome import Refusal
from surgetank.admission.requestlog import AT_ONCE, PERIOD, RequestLog
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.logs import configure
from surgetank.telemetry.tracecontext import SpanId, TraceContext
from surgetank.telemetry.vocabulary import Outcome, Reason

CONTEXT = TraceContext(SpanId("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"))


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers.copy(), root.level
    stream = io.StringIO()
    configure("debug", json=True, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def ended(refusal: Refusal | None = None) -> tuple[Ticket, Refusal | None]:
    ticket = Ticket(id="r1", arrived=5.0, door="http", trace=CONTEXT, prompt_tokens=3)
    ticket.outcome = Outcome.OK if refusal is None else refusal.outcome
    ticket.reason = Reason.NONE if refusal is None else refusal.reason
    ticket.ended_at = 7.5
    return ticket, refusal


def refusal(reason: Reason = Reason.QUEUE_REQUESTS) -> Refusal:
    return Refusal(Outcome.OVERLOAD, reason, f"overload: {reason}")


def test_a_served_request_is_one_line_for_who_wants_all(stream: io.StringIO) -> None:
    ticket, _ = ended()
    ticket.dispatched_at, ticket.first_token_at, ticket.output_tokens = 5.5, 6.0, 9
    ticket.engine, ticket.turned_away = "gpu-3", ("gpu-1", "gpu-2")
    RequestLog().ended(ticket, None, 7.5)
    (line,) = lines(stream)
    del line["time"], line["logger"]
    assert line == {
        "level": "debug",
        "message": "request served",
        "request_id": "r1",
        "trace_id": CONTEXT.id.trace,
        "span_id": CONTEXT.id.span,
        "door": "http",
        "outcome": "ok",
        "lane": "first",
        "priority": "default",
        "seconds": 2.5,
        "prompt_tokens": 3,
        "output_tokens": 9,
        "ttft": 1.0,
        "backend": "gpu-3",
        "moved_from": "gpu-1, gpu-2",
    }


def test_a_refusal_says_why_and_a_fault_is_a_warning(stream: io.StringIO) -> None:
    log = RequestLog()
    log.ended(*ended(refusal()), 1.0)
    log.ended(*ended(Refusal(Outcome.INTERNAL, Reason.BUG, "internal error")), 1.0)
    first, second = lines(stream)
    assert (first["level"], first["message"]) == ("info", "overload: queue_requests")
    assert (first["reason"], first["attempt"]) == ("queue_requests", 0)
    assert (second["level"], second["reason"]) == ("warning", "bug")


def test_a_storm_is_a_few_lines_and_a_number(stream: io.StringIO) -> None:
    log = RequestLog()
    for i in range(1000):
        log.ended(*ended(refusal()), i * PERIOD / 1000)
    log.ended(*ended(refusal(Reason.BROWN_OUT)), PERIOD / 2)  # another reason has its own lines
    assert len(lines(stream)) == AT_ONCE + 1
    log.ended(*ended(refusal()), PERIOD)
    log.ended(*ended(refusal()), PERIOD)
    assert [line.get("suppressed") for line in lines(stream)[-2:]] == [1000 - AT_ONCE, None]


def test_what_was_held_back_is_told_at_the_end(stream: io.StringIO) -> None:
    log = RequestLog()
    for _ in range(AT_ONCE + 5):
        log.ended(*ended(refusal()), 0.0)
    log.close()
    last = lines(stream)[-1]
    assert (last["reason"], last["suppressed"]) == ("queue_requests", 5)


def test_nothing_is_counted_that_would_not_be_told(stream: io.StringIO) -> None:
    configure("warning", json=True, stream=stream)
    log = RequestLog()
    for _ in range(AT_ONCE + 5):
        log.ended(*ended(refusal()), 0.0)
    log.close()
    assert lines(stream) == []
