"""The gauges of each engine behind the gate: by its name, and nothing where nothing is known."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.admission.rig import CARD, Rig
from tests.fakes import engine_look

from surgetank.admission.engine_gauges import register_engine_gauges
from surgetank.admission.routing.side import SideState, Why
from surgetank.admission.snapshot import EngineLook
from surgetank.engine.backends.remote.config import Role
from surgetank.engine.backends.remote.found import Found, Signals, Vitals
from surgetank.telemetry.catalog import CATALOG
from surgetank.telemetry.family import LabelValues
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry

FOUND = Found("vllm", "1", CARD, ("m",))


def gauges(*engines: EngineLook, at: float = 0.0) -> Mapping[str, Mapping[LabelValues, object]]:
    """What a scrape sees of a desk with those engines."""
    registry = Registry(Process.SIDECAR)
    desk = replace(Rig().desk.snapshot(), at=at, engines=engines)
    register_engine_gauges(registry, lambda: desk)
    return {each.spec.name: each.samples for each in registry.read()}


def test_the_embedded_engine_is_one_like_others() -> None:
    desk = Rig().desk.snapshot()
    seen = gauges(*desk.engines)
    assert seen["backend_up"] == {("embedded",): 1}
    assert seen["backend_info"] == {("embedded", "embedded", "both"): 1}
    assert seen["backend_slots"] == {("embedded",): 8}
    assert seen["backend_metrics_age_seconds"] == {}
    assert seen["backend_signal_available"] == {}


def test_each_has_its_own_under_its_name() -> None:
    seen = gauges(
        engine_look("a", dispatched_seqs=3, wait=0.25, routed={Why.WAIT: 7, Why.AFFINITY: 2}),
        engine_look("b", card=None, state=SideState.DOWN, moved_away=4, slots=0.0),
        engine_look("c", role=Role.PREFILL, state=SideState.PREFILL_ONLY, ejections=2, restarts=3),
    )
    assert seen["backend_up"] == {("a",): 1, ("b",): 0, ("c",): 1}
    assert seen["backend_info"]["c", "vllm", "prefill"] == 1
    running = {key: on for key, on in seen["backend_state"].items() if on}
    assert running == {("a", "up"): 1, ("b", "down"): 1, ("c", "prefill_only"): 1}
    assert len(seen["backend_state"]) == 3 * len(SideState)
    assert seen["backend_running_sequences"] == {("a",): 3, ("b",): 0, ("c",): 0}
    assert seen["backend_slots"] == {("a",): 4, ("b",): 0, ("c",): 4}
    assert seen["backend_wait_seconds"] == {("a",): 0.25}
    assert seen["backend_requests_total"]["a", "wait"] == 7
    assert seen["backend_requests_total"]["a", "affinity"] == 2
    assert seen["backend_requests_total"]["b", "only"] == 0
    assert seen["backend_moves_total"] == {("a",): 0, ("b",): 4, ("c",): 0}
    assert seen["backend_restarts_total"] == {("a",): 0, ("b",): 0, ("c",): 3}
    assert seen["backend_ejections_total"] == {("a",): 0, ("b",): 0, ("c",): 2}


def test_another_makers_engine_is_as_old_as_its_metrics() -> None:
    told = Vitals("vllm", "http://a", FOUND, Signals(at=60.0, running=2.0))
    lost = Vitals("vllm", "http://b", None, Signals(at=10.0))
    seen = gauges(
        engine_look("a", vitals=told),
        engine_look("b", vitals=lost, card=None, state=SideState.DOWN),
        engine_look("mute"),
        at=100.0,
    )
    assert seen["backend_metrics_age_seconds"] == {("a",): 40.0, ("b",): 90.0}
    available = seen["backend_signal_available"]
    assert available["a", "running"] == 1
    assert available["a", "kv_used"] == available["b", "running"] == 0


@pytest.mark.parametrize(
    ("metric", "label", "words"),
    [
        ("backend_state", "state", SideState),
        ("backend_requests_total", "why", Why),
        ("backend_info", "role", Role),
    ],
)
def test_the_catalogue_has_every_word(metric: str, label: str, words: type[SideState]) -> None:
    labels = {each.name: each.values for each in CATALOG[metric].labels}
    assert set(labels[label]) == {word.value for word in words}
