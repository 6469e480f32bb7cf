"""The gauges that are read from the desk: right values, and nothing where nothing can be known."""

import pytest
from tests.admission.rig import Rig

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
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
    assert gauge(rig, "backend_up") == {("embedded",): 1}
    level = rig.desk.snapshot().queue[Priority.BATCH]
    assert level.requests == {Lane.FIRST: 3, Lane.RETRY: 0}


def test_gauges_of_a_desk_without_an_engine() -> None:
    rig = Rig()
    rig.backend.die()
    assert gauge(rig, "backend_up") == {("embedded",): 0}
    assert gauge(rig, "backend_metrics_age_seconds") == {}
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
