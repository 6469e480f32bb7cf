"""Our pages are those of prometheus_client's own encoders, byte for byte, but for millions."""

from collections.abc import Iterator
from itertools import accumulate

import pytest
from prometheus_client.exposition import generate_latest as plain
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from surgetank.telemetry.exposition import CHUNK, Writer
from surgetank.telemetry.family import HistogramReading
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Reading, Registry


class Readings(Collector):
    """Readings as prometheus_client sees them."""

    def __init__(self, readings: list[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        for reading in self._readings:
            if reading.samples:
                yield family(reading)


def family(reading: Reading) -> Metric:
    spec = reading.spec
    base = spec.full_name.removesuffix("_total")
    metric = Metric(base, spec.help, spec.type, spec.unit)
    for values, value in reading.samples.items():
        labels = dict(zip(spec.label_names, values))
        if not isinstance(value, HistogramReading):
            metric.add_sample(spec.full_name, labels, value)
            continue
        counts = list(accumulate(value.counts))
        for edge, seen in zip([*map(floatToGoString, value.edges), "+Inf"], counts):
            metric.add_sample(f"{base}_bucket", labels | {"le": edge}, seen)
        metric.add_sample(f"{base}_count", labels, counts[-1])
        metric.add_sample(f"{base}_sum", labels, value.sum)
    return metric


@pytest.fixture
def registry() -> Registry:
    registry = Registry(Process.SIDECAR)
    registry.allow("model", 'a "quoted" \\ name\nin two lines')
    requests = registry.counter("requests_total")
    requests.at("other", "ok", "first", "default").value += 12345
    wait = registry.histogram("queue_wait_seconds").at("default", "dispatched")
    for seconds in (0.0001, 0.3, 0.3, 7.25, 1e5):
        wait.observe(seconds)
    limits = {"inf": float("inf"), "less": float("-inf"), "none": float("nan"), "tiny": 1e-9}
    registry.source(
        "limit_usage", lambda: [({"limit": name}, value) for name, value in limits.items()]
    )
    return registry


def test_pages_equal_those_of_the_reference(registry: Registry) -> None:
    writer = Writer()
    for _ in range(2):  # the second page is written from what the first one remembered
        readings = registry.read()
        assert writer.page(readings, openmetrics=False) == plain(Readings(readings))
        opened = openmetrics(Readings(readings))  # type: ignore[no-untyped-call]
        assert writer.page(readings, openmetrics=True) == opened
        registry.counter("requests_total").at("other", "ok", "first", "default").value += 1


def test_it_pauses_often_enough_to_let_others_run(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("surgetank.telemetry.exposition.time.sleep", pauses.append)
    readings = registry.read()
    lines = Writer().page(readings, openmetrics=False).count(b"\n")
    longest = max(len(value.counts) for value in _histograms(readings))
    assert len(pauses) >= lines // (CHUNK + longest + 2) - 1
    assert all(pauses)  # a sleep of nothing would take the interpreter back at once


def _histograms(readings: list[Reading]) -> Iterator[HistogramReading]:
    for reading in readings:
        for value in reading.samples.values():
            if isinstance(value, HistogramReading):
                yield value
