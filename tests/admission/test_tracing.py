"""What the spans of a request say: its way through the gate, and what an engine is told."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.admission.traced import (
    CHAT,
    INFER,
    ONE,
    SPAN,
    TRACE,
    Traced,
    named,
    parent,
    says,
    seconds,
)
from tests.fakes_collector import attributes

from surgetank.admission.outcome import Refusal
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import Relay, RelayAsk, RelayEngine
from surgetank.admission.ticket import MAX_EVENTS, Ticket
from surgetank.engine.api import Started
from surgetank.engine.backends.remote.api import Forward
from surgetank.telemetry.tracecontext import SpanId, TraceContext
from surgetank.telemetry.vocabulary import FinishReason, Move, Outcome, Reason


def test_a_served_request_is_four_spans_end_to_end(traced: Callable[..., Traced]) -> None:
    it = traced(ONE, sample=0)
    rig = it.rig
    it.ask()  # fills the engine, and is of no further interest
    began = rig.clock.wall()
    it.ask([parent(), ("tracestate", "a=1"), ("x-request-id", "r7")], prompt=5, stream=True)
    rig.clock.advance(0.25)
    rig.backend.finish(1)
    rig.clock.advance(0.125)
    sink = rig.backend.open[2][1]
    sink.on_started(Started(2, 3))
    rig.backend.emit(2, "he")
    rig.clock.advance(0.5)
    sink.on_moved(Move.PREEMPTED)
    rig.clock.advance(0.5)
    sink.on_moved(Move.RESUMED)
    rig.clock.advance(0.5)
    rig.backend.emit(2, "y", finish=FinishReason.STOP)
    spans = it.end()
    assert [span.name for span in spans] == [f"POST {CHAT}", "admission", "queue", "generate"]
    server, admission, queue, generate = spans
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert server.parent_span_id.hex() == SPAN
    assert {span.parent_span_id for span in spans[1:]} == {server.span_id}
    assert len({span.span_id for span in spans}) == 4
    assert [span.kind for span in spans] == [Span.SPAN_KIND_SERVER] + 3 * [Span.SPAN_KIND_INTERNAL]
    assert {span.trace_state for span in spans} == {"a=1"}
    assert server.flags == 0x300  # its parent is another process's
    assert generate.flags == 0x100
    assert server.start_time_unix_nano == round(began * 1e9)
    assert [seconds(span) for span in spans] == pytest.approx([1.875, 0, 0.25, 1.625])
    assert queue.end_time_unix_nano == generate.start_time_unix_nano
    assert generate.end_time_unix_nano == server.end_time_unix_nano
    assert [event.name for event in generate.events] == [
        "started",
        "first_token",
        "preempted",
        "resumed",
    ]
    assert not server.events
    assert not admission.events
    assert says(server) == {
        "http.request.method": "POST",
        "http.route": CHAT,
        "url.path": CHAT,
        "url.scheme": "http",
        "http.response.status_code": 200,
        "surgetank.request.id": "r7",
        "surgetank.lane": "first",
        "surgetank.attempt": 0,
        "surgetank.priority": "default",
        "surgetank.outcome": "ok",
        "surgetank.reason": "none",
    }
    decided = says(admission)
    assert decided["surgetank.decision"] == "admitted"
    assert decided["surgetank.lane"] == "first"
    assert says(generate) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "surgetank",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 8,
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.375),
        "surgetank.time_per_output_token": pytest.approx(1.5),
        "surgetank.longest_gap": pytest.approx(1.5),
        "surgetank.backend": "embedded",
    }


def test_a_shed_is_kept_and_says_what_it_met(traced: Callable[..., Traced]) -> None:
    it = traced(ONE, sample=0)
    for _ in range(2):
        it.ask()
    door = it.ask([parent(flags="00")])  # the caller does not keep it; we do
    assert door.refusal is not None
    server, admission = it.end()
    assert server.trace_id.hex() == TRACE
    assert server.status.code == 0  # not our fault
    assert says(server)["http.response.status_code"] == 429
    assert says(server)["error.type"] == "queue_requests"
    told = says(admission)
    assert told["surgetank.decision"] == "refused"
    assert told["surgetank.reason"] == "queue_requests"
    assert (told["surgetank.measured"], told["surgetank.limit"]) == (2, 1)
    assert told["surgetank.limit.name"] == "queue_requests"
    assert told["surgetank.retry_after"] == door.refusal.retry_after


def test_a_retry_is_linked_to_what_failed(traced: Callable[..., Traced]) -> None:
    it = traced(ONE, sample=0)
    it.ask()
    it.ask(prompt=3)
    assert it.ask(prompt=6).refusal is not None
    it.rig.backend.finish(1)
    it.rig.backend.finish(2)
    it.rig.clock.advance(2.0)
    it.ask(prompt=6)  # the same again, without a word that it is
    it.rig.backend.finish(3)
    spans = it.end()
    first, second = (span for span in spans if span.kind == Span.SPAN_KIND_SERVER)
    assert first.trace_id != second.trace_id
    assert not first.links
    (link,) = second.links
    assert (link.trace_id, link.span_id) == (first.trace_id, first.span_id)
    assert attributes(link.attributes) == {"surgetank.link": "retry_of"}
    assert says(second)["surgetank.attempt"] == 1
    assert says(second)["surgetank.lane"] == "retry"


def test_what_waited_in_vain_has_no_generate(traced: Callable[..., Traced]) -> None:
    it = traced(ONE)
    it.ask()
    it.ask([("x-surgetank-timeout", "2")], door="grpc", route=INFER)
    it.rig.timer.advance(2.5)
    server, admission, queue = it.end()
    assert server.name == INFER
    told = says(server)
    assert told["rpc.system.name"] == "grpc"
    assert told["rpc.method"] == INFER
    assert told["rpc.response.status_code"] == "UNAVAILABLE"
    assert told["error.type"] == "deadline_in_queue"
    assert says(admission)["surgetank.decision"] == "admitted"
    assert says(queue)["surgetank.reason"] == "deadline_in_queue"
    assert seconds(queue) == pytest.approx(2.0, abs=0.01)
    assert [span.status.code for span in (server, admission, queue)] == [2, 0, 2]
    assert "2.00 s after arrival" in queue.status.message


def test_an_engine_that_dies_is_an_error_of_the_engines_part(
    traced: Callable[..., Traced],
) -> None:
    it = traced(sample=0)
    it.ask(stream=True)
    it.rig.backend.emit(1, "he")
    it.rig.backend.die("killed")
    spans = it.end()
    assert named(spans, "generate").status.message == "backend down: killed"
    assert says(spans[0])["http.response.status_code"] == 200  # it had begun to answer
    assert spans[0].status.code == 2


def test_a_client_that_left_was_answered_nothing(traced: Callable[..., Traced]) -> None:
    it = traced(sample=0)
    ticket = it.rig.desk.arrive("http", [])
    ticket.route = CHAT
    it.rig.desk.refuse(ticket, Refusal(Outcome.CANCELLED, Reason.CLIENT_GONE, "gone"))
    server, admission = it.end()
    assert "http.response.status_code" not in says(server)
    assert server.status.code == 0
    assert says(admission)["surgetank.reason"] == "client_gone"


def test_a_tenant_is_named_where_that_is_wanted(traced: Callable[..., Traced]) -> None:
    for tenants in (False, True):
        it = traced(sample=1, tenants=tenants)
        ticket = it.rig.desk.arrive("http", [])
        ticket.tenant = "acme"
        it.rig.desk.refuse(ticket, Refusal(Outcome.INVALID, Reason.BAD_REQUEST, "no"))
        server = it.end()[-2]
        assert ("surgetank.tenant" in says(server)) is tenants


def test_odd_headers_are_counted_and_begin_a_trace(traced: Callable[..., Traced]) -> None:
    it = traced(sample=1)
    it.serve(("traceparent", f"00-{TRACE}-{SPAN}-01-x"), ("tracestate", "a=1"))
    assert it.end()[0].parent_span_id == b""
    assert it.rig.desk.snapshot().ignored_headers == {("traceparent", "malformed"): 1}
    it = traced(sample=1)
    it.serve(parent(), ("tracestate", "A=1"))
    assert it.end()[-4].trace_state == ""
    assert it.rig.desk.snapshot().ignored_headers == {("tracestate", "malformed"): 1}


def test_events_that_repeat_are_bounded(traced: Callable[..., Traced]) -> None:
    it = traced(sample=1)
    it.ask()
    sink = it.rig.backend.open[1][1]
    for _ in range(1000):
        sink.on_moved(Move.PREEMPTED)
        sink.on_moved(Move.RESUMED)
    it.rig.backend.finish(1)
    assert len(named(it.end(), "generate").events) <= MAX_EVENTS + 2


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        (None, [("traceparent", "theirs"), ("accept", "*/*")]),
        (
            TraceContext(SpanId(TRACE, SPAN), None, True),
            [("accept", "*/*"), ("traceparent", f"00-{TRACE}-{SPAN}-01")],
        ),
    ],
)
def test_a_remote_engine_hears_whose_child_it_is(
    trace: TraceContext | None, told: list[tuple[str, str]]
) -> None:
    sent: list[Forward] = []
    remote: Any = SimpleNamespace(forward=lambda number, forward, sink: sent.append(forward))
    headers = (("traceparent", "theirs"), ("accept", "*/*"))
    forward = Forward("/v1/completions", headers, b"{}", 3, stream=True)
    ask = RelayAsk(forward, 8, 1, False, 5, lambda body, most: body)
    ticket = Ticket(id="r", arrived=0.0, door="http", trace=trace, stream=True)
    nobody: Any = None
    engines = [RelayEngine(remote)]
    Relay(nobody, engines, PromptSizes(), ticket, ask, nobody).start(1, None, 0)
    assert [*sent[0].headers] == told
