"""The bench of telemetry: scrapes of a page as long as may be, with and without a gap to show."""

import pytest
import uvloop

from surgetank.control.bench import recording
from surgetank.telemetry.clock import SystemClock


def test_the_gap_of_a_scrape_stands_beside_that_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "SCRAPES", 3)
    gaps = uvloop.run(recording._gaps(SystemClock()))
    assert recording.SERIES <= gaps["series"] < 2 * recording.SERIES
    assert gaps["scrape_seconds"] > 0
    for name in ("gap", "gap_at_rest"):
        assert 0 <= gaps[f"{name}_seconds"] <= gaps[f"{name}_worst_seconds"]
    costs = {"step_seconds": 0.05, "cost_seconds": {"building the record": 0.0001}}
    step, scrape = recording._tables(costs | gaps)
    assert step["rows"][-1] == ["all", "100.0", "0.200% (goal 1%)"]
    assert [row[0] for row in scrape["rows"]] == ["without a scrape", "during a scrape"]
    assert scrape["rows"][1][2] == f"{gaps['gap_worst_seconds'] * 1e3:.2f}"
