"""The gauges that are read from the desk: right values, and nothing where nothing can be known."""

import pytest
from tests.admission.rig import Rig
from tests.admission.virtual_engine import Service

from surgetank.admission.arrival import _READ, Problem
from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.telemetry.catalog_sidecar import HEADER, PROBLEM
from surgetank.telemetry.family import LabelValues
from surgetank.telemetry.vocabulary import Lane, Priority


def gauge(rig: Rig, name: str) -> dict[LabelValues, object]:
    """A gauge's samples, as a scrape would see them."""
    return next(
        dict(reading.samples)
        for reading in rig.recorder.registry.read()
        if reading.spec.name == name
    )


def test_gauges_of_a_busy_desk() -> None:
    rig = Rig(GateConfig(in_flight_seqs=2, queue_requests=50))
    rig.send(prompt=20, max_tokens=12, n=2)  # two blocks of prompt and output for each choice
    rig.send(prompt=100, n=2, priority=Priority.BATCH)
    rig.timer.advance(3)
    rig.send(prompt=10, priority=Priority.BATCH)
    rig.desk.limits.override(Limit.QUEUE_REQUESTS, 60, until=99, who="op", why="test")
    assert gauge(rig, "queue_oldest_age_seconds") == {("batch",): pytest.approx(3.0)}
    usage = gauge(rig, "limit_usage")
    assert usage["queue_requests",] == 3
    assert usage["queue_tokens",] == 110
    assert usage["queue_wait",] == pytest.approx(3.0)
    assert usage["in_flight_seqs",] == 2
    assert usage["kv_reserve",] == 3 / 512
    limits = gauge(rig, "limit")
    assert limits["queue_requests", "current"] == 60
    assert (limits["in_flight_seqs", "min"], limits["in_flight_seqs", "max"]) == (1, 8)
    override = gauge(rig, "limit_override")
    assert (override["queue_requests",], override["kv_reserve",]) == (1, 0)
    level = rig.desk.snapshot().queue[Priority.BATCH]
    assert level.requests == {Lane.FIRST: 3, Lane.RETRY: 0}


def test_gauges_of_a_desk_without_an_engine() -> None:
    rig = Rig()
    rig.backend.die()
    assert gauge(rig, "queue_oldest_age_seconds") == {}
    assert ("kv_reserve",) not in gauge(rig, "limit_usage")


def test_ignored_headers_are_counted() -> None:
    rig = Rig()
    for _ in range(3):
        rig.arrive([("x-surgetank-priority", "0"), ("x-stainless-retry-count", "x")])
    counted = rig.desk.snapshot().ignored_headers
    assert counted == {
        ("x-surgetank-priority", "raised"): 3,
        ("x-stainless-retry-count", "malformed"): 3,
    }
    exported = gauge(rig, "headers_ignored_total")
    assert exported["x-surgetank-priority", "raised"] == 3
    assert exported["traceparent", "conflict"] == 0


def test_the_header_labels_are_the_headers_that_are_read() -> None:
    assert set(HEADER.values) == _READ
    assert set(PROBLEM.values) == set(Problem)


def test_the_laws_are_exported_with_every_term_once_they_are_known() -> None:
    service = Service()
    assert read(service, "predicted_wait_seconds") == {}
    assert read(service, "queue_threshold_requests") == {}
    assert read(service, "step_model_fitted") == {(): 0}
    service.warm_up()
    service.flow(120.0, 3.0, service.send)
    wait = read(service, "predicted_wait_seconds")
    assert set(wait) == {("slot",), ("prefill",), ("age",), ("total",)}
    laws = service.desk.snapshot().laws
    assert laws.wait is not None
    assert wait["total",] == pytest.approx(laws.wait.seconds)
    assert read(service, "step_model_fitted") == {(): 1}
    assert read(service, "queue_threshold_requests") == {(): pytest.approx(laws.queue_bound)}
    assert read(service, "wait_threshold_seconds") == {(): pytest.approx(0.7)}
    assert read(service, "drain_rate") == {(): pytest.approx(1.0, abs=0.05)}
    assert read(service, "request_cost_seconds") == {(): pytest.approx(laws.mean_cost)}
    assert read(service, "brownout_level") == {(): 0}
    assert read(service, "retry_budget_seconds")[()] > 0
    assert read(service, "ledger_drift") == {(): 0}


def read(service: Service, name: str) -> dict[LabelValues, float]:
    """A gauge's samples, as a scrape would see them."""
    samples = next(e.samples for e in service.recorder.registry.read() if e.spec.name == name)
    return {labels: value for labels, value in samples.items() if isinstance(value, float)}
