"""Spans reach a collector as they were; one that is slow, refuses or is silent costs only spans."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from tests.fakes_collector import BlackHole, Collector, GrpcCollector, attributes

from surgetank import __version__
from surgetank.telemetry import otlp
from surgetank.telemetry.clock import SystemClock
from surgetank.telemetry.conventions import SCHEMA_URL
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.otlp import open_shipper
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.spans import context, ended_span
from surgetank.telemetry.tracecontext import SpanId
from surgetank.telemetry.tracing_config import GRPC, TracingConfig

ID = SpanId("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
OTHER = SpanId("1" * 32, "2" * 16)
TRIES = 6  # of OpenTelemetry's exporters


def plain(by: Resource) -> list[ReadableSpan]:
    return [ended_span(by, "s", context(ID), None, 10.0, 11.5, attributes={})]


def full(by: Resource) -> list[ReadableSpan]:
    parent = context(SpanId(ID.trace, "3" * 16), remote=True, state="a=b,c@d=e")
    return [
        ended_span(
            by,
            "s",
            context(ID, state="a=b,c@d=e"),
            parent,
            10.0,
            11.5,
            kind=SpanKind.SERVER,
            attributes={"s": "x", "i": 3, "f": 0.5, "b": True, "absent": None},
            events=[(10.25, "e1"), (10.5, "e2")],
            links=[(OTHER, "retry_of")],
            error="it broke",
        )
    ]


class Post:
    """A shipper, its counters, and how to hand it one span."""

    def __init__(self, url: str, **settings: object) -> None:
        config = TracingConfig.model_validate({"endpoint": url, **settings})
        self._registry = Registry(Process.SIDECAR)
        shipper = open_shipper(config, {}, self._registry, SystemClock())
        assert shipper is not None
        self.shipper = shipper

    def offer(self, times: int = 1, build: otlp.Build = plain) -> list[bool]:
        return [self.shipper.offer(1, build) for _ in range(times)]

    @property
    def exported(self) -> float:
        return self._registry.counter("trace_spans_exported_total").at().value

    @property
    def dropped(self) -> dict[str, float]:
        children = self._registry.counter("trace_spans_dropped_total").children()
        return {why: counter.value for (why,), counter in children.items() if counter.value}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "DELAY", 0.01)


@contextmanager
def posting(url: str, **settings: object) -> Iterator[Post]:
    post = Post(url, **settings)
    try:
        yield post
    finally:
        post.shipper.close(5.0)


def until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < give_up
        threading.Event().wait(0.002)


def ended(post: Post) -> None:
    """The thread that close() left behind has ended too, without waiting for its next try."""
    post.shipper._exporter.shutdown()
    post.shipper._thread.join(20)
    assert not post.shipper._thread.is_alive()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of it, whoever says it."""
    return [each.message for each in caplog.records if each.levelno >= logging.INFO]


@pytest.mark.parametrize("make", [Collector, GrpcCollector])
def test_a_span_is_told_as_it_was(
    make: type[Collector] | type[GrpcCollector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "zone=a")
    settings = {"headers": "x-key=k%201", "protocol": GRPC if make is GrpcCollector else ""}
    with make() as collector, posting(collector.url, **settings) as post:
        post.offer(build=full)
        (message,) = collector.wait(1)
        until(lambda: post.exported == 1)
    assert message.trace_id.hex() == ID.trace
    assert (message.span_id.hex(), message.parent_span_id.hex()) == (ID.span, "3" * 16)
    assert (message.trace_state, message.flags, message.kind) == ("a=b,c@d=e", 0x300, 2)
    assert message.start_time_unix_nano == 10_000_000_000
    assert message.end_time_unix_nano == 11_500_000_000
    assert attributes(message.attributes) == {"s": "x", "i": 3, "f": 0.5, "b": True}
    assert [(event.name, event.time_unix_nano) for event in message.events] == [
        ("e1", 10_250_000_000),
        ("e2", 10_500_000_000),
    ]
    assert message.links[0].span_id.hex() == OTHER.span
    assert attributes(message.links[0].attributes) == {"surgetank.link": "retry_of"}
    assert (message.status.code, message.status.message) == (2, "it broke")
    (of_resource,) = collector.bodies[0].resource_spans
    said = attributes(of_resource.resource.attributes)
    assert (said["zone"], said["service.name"]) == ("a", "surgetank")
    assert (said["service.version"], said["telemetry.sdk.name"]) == (__version__, "opentelemetry")
    assert of_resource.scope_spans[0].scope.name == "surgetank"
    assert of_resource.schema_url == of_resource.scope_spans[0].schema_url == SCHEMA_URL
    assert collector.headers[0]["x-key"] == "k 1"
    assert post.dropped == {}
    if isinstance(collector, Collector):
        assert collector.paths == ["/v1/traces"]


def test_many_leave_in_batches() -> None:
    with Collector() as collector, posting(collector.url) as post:
        post.offer(3 * otlp.BATCH)
        collector.wait(3 * otlp.BATCH)
        until(lambda: post.exported == 3 * otlp.BATCH)
    assert len(collector.bodies) < otlp.BATCH
    assert post.dropped == {}


def test_a_batch_rests_while_it_is_gone_through() -> None:
    rests: list[int] = []
    batch = otlp._Gentle(lambda: rests.append(1))
    batch += plain(Resource({})) * (2 * otlp._STRETCH + 1)
    for _ in range(2):  # it may be encoded for every try
        assert len([*iter(batch)]) == 2 * otlp._STRETCH + 1
    assert len(rests) == 4


def test_what_passes_in_time_is_no_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        Collector([503, 429]) as collector,
        posting(collector.url) as post,
    ):
        post.offer()
        collector.wait(1)
        until(lambda: post.exported == 1)
    assert len(collector.paths) == 3
    assert post.dropped == {}
    assert told(caplog) == []


def test_of_many_failures_the_log_has_the_first_and_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.INFO),
        Collector([503] * 2 * TRIES) as collector,
        posting(collector.url) as post,
    ):
        for lost in (1, 2):
            post.offer()
            until(lambda lost=lost: post.dropped == {"unreachable": lost})  # type: ignore[misc]
        post.offer()  # each has its own chance
        collector.wait(1)
        until(lambda: post.exported == 1)
    assert len(collector.paths) == 2 * TRIES + 1
    first, end = told(caplog)
    assert first.startswith("traces do not reach the collector: ")
    assert "Service Unavailable" in first
    assert end == "traces reach the collector again"


@pytest.mark.parametrize("protocol", ["", GRPC])
def test_a_collector_that_is_not_there(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with posting(url, protocol=protocol, timeout=0.2) as post:
        for lost in (1, 2):
            post.offer()
            until(lambda lost=lost: post.dropped == {"unreachable": lost})  # type: ignore[misc]
    (line,) = told(caplog)
    assert line.startswith("traces do not reach the collector: ")


def test_what_is_not_wanted_is_not_sent_again() -> None:
    with Collector([400]) as collector, posting(collector.url) as post:
        post.offer()
        until(lambda: post.dropped == {"rejected": 1})
    assert len(collector.paths) == 1
    assert post.exported == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "rejected"),
        (grpc.StatusCode.UNAUTHENTICATED, "rejected"),
        (grpc.StatusCode.UNAVAILABLE, "unreachable"),
    ],
)
def test_grpc_codes(code: grpc.StatusCode, why: str) -> None:
    with (
        GrpcCollector([code]) as collector,
        posting(collector.url, protocol=GRPC, timeout=0.5) as post,
    ):
        post.offer()
        until(lambda: post.dropped == {why: 1})
    assert len(collector.headers) == 1


def test_what_others_say_by_the_same_logger_stays(caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as collector, posting(collector.url):
        logging.getLogger(otlp._VOICES[False]).warning("another exporter's")
    assert told(caplog) == ["another exporter's"]


def test_a_fault_in_one_batch_is_not_the_end() -> None:
    def broken(by: Resource) -> list[ReadableSpan]:
        raise KeyError("gone")

    with Collector() as collector, posting(collector.url) as post:
        post.offer(build=broken)
        until(lambda: post.dropped == {"bug": 1})
        post.offer()
        collector.wait(1)


def test_what_the_exporter_objects_to_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "snappy")
    config = TracingConfig(endpoint="http://127.0.0.1:9", protocol=GRPC)
    assert open_shipper(config, {}, Registry(Process.SIDECAR), SystemClock()) is None
    (line,) = told(caplog)
    assert line.startswith("nothing is traced: ")
    assert "snappy" in line


@pytest.mark.parametrize("protocol", ["", GRPC])
def test_silence_fills_the_queue_and_no_more(protocol: str) -> None:
    with BlackHole() as hole:
        post = Post(hole.url, queue=5, timeout=5, protocol=protocol)
        post.offer()
        with hole.wait():  # the thread is in its request now, and stays there
            offered = post.offer(8)
            assert offered == [True] * 5 + [False] * 3
            assert post.dropped == {"queue_full": 3}
            begun = time.monotonic()
            post.shipper.close(0.2)
            assert 0.1 < time.monotonic() - begun < 2
            assert post.dropped == {"queue_full": 3, "shutdown": 6}
    ended(post)
    assert post.dropped == {"queue_full": 3, "shutdown": 6}  # and are not counted again


def test_a_silent_collector_is_left_after_the_timeout() -> None:
    with BlackHole() as hole, posting(hole.url, timeout=0.1) as post:
        post.offer()
        until(lambda: post.dropped == {"unreachable": 1})


def test_the_last_ones_leave_before_the_end() -> None:
    with Collector() as collector:
        post = Post(collector.url)
        post.offer(2 * otlp.BATCH + 3)
        post.shipper.close(20.0)
        assert len(collector.spans) == 2 * otlp.BATCH + 3
    assert (post.exported, post.dropped) == (2 * otlp.BATCH + 3, {})


def test_no_pause_between_tries_outlasts_the_end() -> None:
    with Collector([503], retry_after=20) as collector:
        post = Post(collector.url, timeout=30)
        post.offer()
        collector.wait_exports(1)
        begun = time.monotonic()
        post.shipper.close(0.2)
        assert time.monotonic() - begun < 2
        assert post.dropped == {"shutdown": 1}
        ended(post)
    assert post.dropped == {"shutdown": 1}
