"""Live is progress, ready is room: a frozen engine asks for a restart, a full queue does not."""

from dataclasses import replace

import pytest
from tests.admission.rig import Rig

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.health import judge


@pytest.fixture
def desk() -> DeskSnapshot:
    return Rig(GateConfig(queue_requests=10)).desk.snapshot()


def test_healthy(desk: DeskSnapshot) -> None:
    health = judge(replace(desk, stalled_for=59.0), hung_after=60)
    assert (health.live, health.ready) == (True, True)


def test_a_frozen_engine_is_not_live(desk: DeskSnapshot) -> None:
    health = judge(replace(desk, stalled_for=61.0), hung_after=60)
    assert (health.live, health.ready) == (False, False)
    assert "no step for 61 s" in health.detail


def test_a_dead_engine_is_live_and_not_ready(desk: DeskSnapshot) -> None:
    health = judge(replace(desk, model=None, stalled_for=None), hung_after=60)
    assert (health.live, health.ready) == (True, False)
    assert health.detail == "no engine takes requests"
    away = tuple(replace(engine, card=None) for engine in desk.engines)
    gone = judge(replace(desk, model=None, stalled_for=None, engines=away), hung_after=60)
    assert gone.detail == "the engine is not there"


def test_draining_is_live_and_not_ready(desk: DeskSnapshot) -> None:
    health = judge(replace(desk, draining=True), hung_after=60)
    assert (health.live, health.ready, health.detail) == (True, False, "draining")


@pytest.mark.parametrize(("waiting", "ready"), [(9.0, True), (10.0, False)])
def test_a_full_queue_is_live_and_not_ready(
    desk: DeskSnapshot, waiting: float, ready: bool
) -> None:
    usage = {**desk.limit_usage, Limit.QUEUE_REQUESTS.value: waiting}
    health = judge(replace(desk, limit_usage=usage), hung_after=60)
    assert (health.live, health.ready) == (True, ready)
