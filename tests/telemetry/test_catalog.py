"""The catalogue keeps to Prometheus's naming rules and says everything a reader needs."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from surgetank.telemetry.catalog import CATALOG, MetricSpec, MetricType, find, markdown
from surgetank.telemetry.metricspec import Openness

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
BASE_UNITS = {"seconds", "bytes", "tokens", "blocks", ""}
NOT_BASE = re.compile(r"_(ms|millis|milliseconds|us|minutes|kb|mb|percent|kilobytes)(_|$)")
specs = pytest.mark.parametrize("spec", CATALOG.values(), ids=lambda spec: str(spec.name))


@specs
def test_the_name_keeps_to_the_rules(spec: MetricSpec) -> None:
    assert re.fullmatch(r"surgetank_[a-z][a-z0-9_]*", spec.full_name)  # so: no colon either
    assert not NOT_BASE.search(spec.name)
    assert spec.unit in BASE_UNITS
    assert spec.name.endswith("_total") == (spec.type is MetricType.COUNTER)
    assert not spec.name.endswith(("_count", "_sum", "_bucket", "_created"))
    if spec.unit:
        assert spec.full_name.removesuffix("_total").endswith("_" + spec.unit)
    if "seconds" in spec.name:
        assert spec.unit == "seconds"


@specs
def test_the_entry_is_complete(spec: MetricSpec) -> None:
    assert spec.help.endswith(".")
    assert (spec.buckets is not None) == (spec.type is MetricType.HISTOGRAM)
    assert len(set(spec.label_names)) == len(spec.label_names)
    for label in spec.labels:
        assert re.fullmatch(r"[a-z][a-z_]*", label.name)
        assert label.name not in {"le", "tenant", "request", "request_id", "trace_id"}
        assert label.values or label.openness is not Openness.CLOSED
        assert len(set(label.values)) == len(label.values)


@specs
def test_buckets_ascend_and_say_why(spec: MetricSpec) -> None:
    if spec.buckets is None:
        return
    assert all(low < high for low, high in pairwise(spec.buckets.edges))
    assert spec.buckets.edges[0] > 0
    assert len(spec.buckets.why) > 20


def test_find_takes_the_name_with_and_without_prefix() -> None:
    assert find("surgetank_tokens_total") is find("tokens_total")
    with pytest.raises(LookupError, match="tokens: no such metric"):
        find("tokens")


def test_the_page_of_metrics_is_current() -> None:
    again = "surgetank docs metrics --out docs/metrics.md"
    assert PAGE.read_text("utf-8") == markdown(), f"run: {again}"


def test_the_markdown_table_has_one_row_a_metric() -> None:
    lines = markdown().splitlines()
    assert sum(line.startswith("| `") for line in lines) == len(CATALOG)
    assert all(line.count(" | ") == 4 for line in lines if line.startswith("| `"))
    (row,) = [line for line in lines if "`surgetank_queue_wait_seconds`" in line]
    assert "outcome: dispatched, shed, expired, cancelled" in row
    assert "0.001 0.005" in row
    assert "TTFT target" in row
