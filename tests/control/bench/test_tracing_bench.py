"""The tracing bench serves all three sides, and its silent collector takes nothing."""

import pytest

from surgetank.control.bench.tracing import OFF, SILENT, TAKING, trace
from surgetank.telemetry.clock import SystemClock


@pytest.mark.e2e
def test_each_side_is_asked_and_only_one_collector_takes_spans() -> None:
    found = trace(20.0, 1, 0.5, SystemClock(), lambda text: None)
    rows = {row["collector"]: row for row in found["rows"]}
    assert list(rows) == [OFF, SILENT, TAKING]
    assert all(row["requests"] > 2 and row["p50_seconds"] >= 0.03 for row in rows.values())
    assert rows[OFF]["p99_change"] == 0
    assert [rows[name]["spans_exported"] for name in (OFF, SILENT)] == [0, 0]
