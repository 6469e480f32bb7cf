"""Which requests' traces are kept, and which examples lead to them."""

import random
from collections.abc import Callable

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from tests.admission.rig import Rig
from tests.admission.traced import (
    OPEN,
    SPAN,
    TRACE,
    Traced,
    parent,
)

from surgetank.admission.tracing import open_tracer
from surgetank.telemetry.exporter import Exporter
from surgetank.telemetry.tracing_config import TracingConfig
from surgetank.telemetry.vocabulary import FinishReason


@pytest.mark.parametrize(
    ("headers", "seconds", "kept"),
    [
        ([], 0.1, False),
        ([parent(flags="01")], 0.1, True),
        ([parent(flags="00")], 0.1, False),
        ([], 1.5, True),  # its first token came after the target
        ([parent(flags="00")], 1.5, True),
    ],
)
def test_of_the_ordinary_only_what_the_caller_keeps(
    traced: Callable[..., Traced],
    headers: list[tuple[str, str]],
    seconds: float,
    kept: bool,
) -> None:
    it = traced(sample=0)
    it.serve(*headers, seconds=seconds)
    assert bool(it.end()) is kept


def test_of_the_rest_a_share(traced: Callable[..., Traced]) -> None:
    it = traced(sample=0.25)
    for _ in range(200):
        it.serve()
    assert 25 < len({span.trace_id for span in it.end()}) < 75


def test_without_a_collector_only_the_callers_ids_are_known() -> None:
    rig = Rig(
        make_tracer=lambda recorder, clock: open_tracer(
            TracingConfig(), {}, recorder, clock, random.Random(1)
        )
    )
    assert rig.arrive().trace is None
    fields = rig.arrive([parent()]).log_fields
    assert fields == {"request_id": TRACE, "trace_id": TRACE, "span_id": SPAN}


def exemplars(rig: Rig, name: str) -> list[tuple[dict[str, str], float, str]]:
    page = Exporter(rig.recorder.registry, rig.clock).render(OPEN)[1].decode()
    families = openmetrics.text_string_to_metric_families(page)  # type: ignore[no-untyped-call]
    return [
        (sample.exemplar.labels, sample.exemplar.value, sample.labels["le"])
        for family in families
        if family.name == f"surgetank_{name}"
        for sample in family.samples
        if sample.exemplar is not None
    ]


def test_examples_lead_to_kept_traces_only(traced: Callable[..., Traced]) -> None:
    it = traced(sample=0)
    it.serve()
    assert exemplars(it.rig, "request_duration_seconds") == []
    it.ask([parent()])
    it.rig.clock.advance(0.3125)
    it.rig.backend.emit(2, "he")
    it.rig.clock.advance(0.125)
    it.rig.backend.emit(2, "y", finish=FinishReason.STOP)
    server = it.end()[0]
    ids = {"trace_id": TRACE, "span_id": server.span_id.hex()}
    assert sum(map(len, [*ids, *ids.values()])) <= 128
    assert exemplars(it.rig, "request_time_to_first_token_seconds") == [(ids, 0.3125, "0.4")]
    assert exemplars(it.rig, "request_duration_seconds") == [(ids, 0.4375, "0.5")]
    assert exemplars(it.rig, "request_time_per_output_token_seconds") == [(ids, 0.125, "0.15")]
    assert exemplars(it.rig, "inter_token_latency_seconds") == [(ids, 0.125, "0.15")]
    ((found, waited, _),) = exemplars(it.rig, "queue_wait_seconds")
    assert (found, waited) == (ids, 0.0)
    plain = Exporter(it.rig.recorder.registry, it.rig.clock).render()[1]
    assert TRACE.encode() not in plain


def test_a_trace_that_found_no_room_has_no_example(traced: Callable[..., Traced]) -> None:
    it = traced(sample=1, queue=1)
    shipper = it.tracer._shipper
    assert shipper is not None
    it.serve()
    shipper.close(20.0)  # from here on nothing leaves the queue
    before = exemplars(it.rig, "request_duration_seconds")
    it.serve()
    it.serve(seconds=0.7)
    assert len(exemplars(it.rig, "request_duration_seconds")) == len(before) == 1
