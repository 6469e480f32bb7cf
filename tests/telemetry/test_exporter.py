"""Both exposition formats parse and agree, and any scraper gets one of them."""

from collections.abc import Iterable

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.exporter import Exporter
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, Reason

OPEN = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder(Registry(Process.SIDECAR), ["smol"])
    recorder.received(Lane.FIRST)
    recorder.received(Lane.RETRY)
    recorder.ended(
        model="smol",
        outcome=Outcome.OK,
        reason=Reason.NONE,
        lane=Lane.FIRST,
        priority=Priority.DEFAULT,
        duration=1.25,
    )
    return recorder


@pytest.fixture
def exporter(recorder: Recorder) -> Exporter:
    return Exporter(recorder.registry, ManualClock())


def parse_open(text: str) -> list[Metric]:
    return list(openmetrics.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def series(families: Iterable[Metric]) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(seen: Series, name: str, **labels: str) -> float:
    return seen[f"surgetank_{name}", frozenset(labels.items())]


def test_both_formats_say_the_same(exporter: Exporter, recorder: Recorder) -> None:
    plain_type, plain = exporter.render("*/*")
    open_type, opened = exporter.render(OPEN)
    assert plain_type.startswith("text/plain; version=0.0.4")
    assert open_type.startswith("application/openmetrics-text; version=1.0.0")
    assert opened.endswith(b"# EOF\n")
    first, second = (
        {key: number for key, number in seen.items() if "scrape" not in key[0]}
        for seen in (
            series(parse_plain(plain.decode())),
            series(parse_open(opened.decode())),
        )
    )
    assert first == second
    assert all(name.startswith("surgetank_") for name, _ in first)
    assert value(first, "requests_received_total") == 2
    assert value(first, "requests_in_flight", lane="retry") == 1
    labels = {"model": "smol", "priority": "default"}
    assert value(first, "request_duration_seconds_bucket", le="1.0", **labels) == 0
    assert value(first, "request_duration_seconds_bucket", le="1.5", **labels) == 1
    assert value(first, "request_duration_seconds_bucket", le="+Inf", **labels) == 1
    assert value(first, "request_duration_seconds_count", **labels) == 1
    assert value(first, "request_duration_seconds_sum", **labels) == 1.25


def test_what_cannot_be_known_has_no_line(exporter: Exporter) -> None:
    names = {family.name for family in parse_plain(exporter.render()[1].decode())}
    assert "surgetank_backend_up" not in names
    assert "surgetank_queue_requests" in names
    assert "surgetank_build_info" in names


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "text/plain; version=abc",
        "text/plain;version=9.9.9 evil",
        ";,=,;",
        "application/openmetrics-text; version=x",
    ],
)
def test_any_accept_header_gets_an_answer(exporter: Exporter, accept: str) -> None:
    content_type, body = exporter.render(accept)
    assert "evil" not in content_type
    assert b"surgetank_requests_received_total 2" in body


def test_each_scrape_is_timed(exporter: Exporter) -> None:
    exporter.render()
    exporter.render(OPEN)
    seen = series(parse_plain(exporter.render()[1].decode()))
    assert value(seen, "telemetry_scrape_seconds_count") == 2
