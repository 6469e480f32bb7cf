"""Runs kept in a file: who is compared with whom, and what counts as worse."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.serve.history import Ratio, append, compare, last_equal, table_of

FIGURES = {
    "request_goodput": 10.0,
    "request_throughput": 12.0,
    "output_throughput": 500.0,
    "p99_ttft_ms": 800.0,
}


def line(number: int, settings: str = "a", *, interrupted: bool = False) -> dict[str, Any]:
    return {"settings_hash": settings, "interrupted": interrupted, "figures": {"n": number}}


def test_the_last_whole_run_of_equal_settings_is_found(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    assert last_equal(path, "a") is None
    runs = (line(1), line(2), line(3, "b"), line(4, interrupted=True))
    for each in runs:
        append(path, each)
    found = last_equal(path, "a")
    assert found is not None
    assert found["figures"] == {"n": 2}
    assert last_equal(path, "c") is None
    assert [json.loads(text) for text in path.read_text().splitlines()] == list(runs)


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append(path, line(1))
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(BenchError, match="line 2 is no run"):
        last_equal(path, "a")


@pytest.mark.parametrize(
    ("changed", "worse"),
    [
        ({}, []),
        ({"request_goodput": 9.1}, []),
        ({"request_goodput": 8.9}, ["request_goodput"]),
        ({"p99_ttft_ms": 879.0}, []),
        ({"p99_ttft_ms": 881.0}, ["p99_ttft_ms"]),
        ({"p99_ttft_ms": 1.0, "request_throughput": 99.0}, []),
        ({"output_throughput": 449.0}, ["output_throughput"]),
        ({"p99_ttft_ms": None}, ["p99_ttft_ms"]),
    ],
)
def test_worse_is_what_leaves_the_tolerance(changed: dict[str, float], worse: list[str]) -> None:
    ratios, regressed = compare({**FIGURES, **changed}, FIGURES, 0.1)
    assert [each.name for each in ratios if each.worse] == worse
    assert regressed == bool(worse)


def test_a_figure_that_is_new_is_not_worse() -> None:
    ratios, regressed = compare(FIGURES, {**FIGURES, "p99_ttft_ms": None}, 0.1)
    assert not regressed
    assert "p99_ttft_ms" in [each.name for each in ratios]


def test_ratios_are_now_by_then() -> None:
    assert Ratio("x", 3.0, 2.0, False).change == 1.5
    assert Ratio("x", 1.0, 0.0, False).change == math.inf
    assert Ratio("x", 0.0, 0.0, False).change == 1.0
    table = table_of([Ratio("p99_ttft_ms", None, 2.0, True)], "yesterday")
    assert table["rows"] == [["p99_ttft_ms", "-", "2", "-", "worse"]]
