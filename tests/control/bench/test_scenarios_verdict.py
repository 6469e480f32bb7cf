"""Ratios, bars and the document: what holds, what does not, and what cannot be said."""

import json
import math
from dataclasses import replace

import pytest

from surgetank.control.bench.load.watch import Strain
from surgetank.control.bench.scenarios.plan import Cell
from surgetank.control.bench.scenarios.report import (
    Seen,
    as_json,
    cell_table,
    comparison_table,
    notes_of,
    shown,
    too_slow,
    verdict_table,
)
from surgetank.control.bench.scenarios.rows import Figures
from surgetank.control.bench.scenarios.verdict import (
    Comparison,
    compare,
    middle,
    values,
    verdicts,
)

NAN = math.nan
BASE = Figures(
    calls=100,
    success=1.0,
    goodput=0.8,
    offered=0.8,
    ttft_p50=0.2,
    ttft_p99=0.5,
    wait_p50=0.2,
    wait_p99=0.5,
    attempts=1.0,
    grpc_attempts=1.0,
    quartiles=(0.5, 0.4, 0.5, 0.4),
    recovery=NAN,
    times_let_in=NAN,
    high_ttft_p99=0.5,
    high_success=1.0,
    low_share=NAN,
)


def cell(letter: str, name: str) -> Cell:
    return Cell(letter, name, (), 0.0, 10.0, 1.0)


A = [cell("a", "1"), cell("a", "2")]
D = [cell("d", "alone"), cell("d", "low 5"), cell("d", "low 10")]


@pytest.mark.parametrize(
    ("measured", "predicted", "holds"),
    [(1.0, 1.149, True), (1.0, 0.851, True), (1.0, 1.16, False), (0.0, 1.0, False)],
)
def test_a_prediction_holds_within_its_goal(measured: float, predicted: float, holds: bool) -> None:
    assert Comparison("a 1", "x", measured, predicted).holds is holds


def test_what_was_not_measured_does_not_hold() -> None:
    assert not Comparison("a 1", "x", NAN, 1.0).holds


def test_overload_is_judged_at_its_last_load_against_the_peak() -> None:
    found = {"a 1": replace(BASE, goodput=1.0), "a 2": replace(BASE, goodput=0.9)}
    assert values("a", A, found) == {
        "goodput_of_peak": 0.9,
        "quartile_success_max_over_min": 1.25,
    }
    found["a 2"] = replace(BASE, quartiles=(0.5, 0.0, 0.5, 0.5))
    assert values("a", A, found)["quartile_success_max_over_min"] == math.inf


def test_a_stall_is_judged_by_its_worst_cell() -> None:
    cells = [cell("b", "1"), cell("b", "2")]
    found = {
        "b 1": replace(BASE, recovery=0.5, times_let_in=1.2),
        "b 2": replace(BASE, recovery=3.0, times_let_in=1.0),
    }
    assert values("b", cells, found) == {"recovery_seconds": 3.0, "times_let_in": 1.2}
    found["b 2"] = BASE
    assert math.isnan(values("b", cells, found)["recovery_seconds"])


def test_priority_is_judged_against_the_high_class_alone() -> None:
    found = {
        "d alone": replace(BASE, high_ttft_p99=0.4),
        "d low 5": replace(BASE, high_ttft_p99=0.44, low_share=0.5),
        "d low 10": replace(BASE, high_ttft_p99=0.48, high_success=0.99, low_share=0.6),
    }
    got = values("d", D, found)
    assert got["high_ttft_p99_of_unloaded"] == pytest.approx(1.2)
    assert (got["high_success"], got["low_class_share"]) == (0.99, 0.5)
    holding = [each.holds for each in verdicts(D, found, found)]
    assert holding == [True, False, True]


def test_only_what_was_played_is_judged() -> None:
    found = {"a 1": BASE, "a 2": BASE}
    assert {each.scenario for each in verdicts(A, found, found)} == {"a"}
    assert len(compare(A, found, found)) == 6


def test_the_lab_says_its_median() -> None:
    runs = [replace(BASE, ttft_p50=t, quartiles=(t, 1.0)) for t in (0.1, 0.4, 0.2)]
    assert (middle(runs).ttft_p50, middle(runs).quartiles) == (0.2, (0.2, 1.0))
    assert math.isnan(middle(runs).recovery)


def seen(each: Cell, late: float = 0.0) -> Seen:
    return Seen(each, BASE, Strain(0.0, late, 0.1), 1.02, {"RateLimitError": 3})


def test_the_document_is_json_and_says_null_for_nothing() -> None:
    lab = {each.title: replace(BASE, recovery=math.inf) for each in A}
    real = {each.title: BASE for each in A}
    compared, judged = compare(A, real, lab), verdicts(A, real, lab)
    document = as_json([seen(each) for each in A], lab, compared, judged)
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["cells"][0]["measured"]["recovery"] is None
    assert again["cells"][0]["errors"] == {"RateLimitError": 3}
    assert again["comparisons"][0]["holds"] is True
    assert again["experiments"][0]["bar"] == "goodput_of_peak >= 0.95"


def test_tables_have_a_cell_for_each_column() -> None:
    lab = real = {each.title: BASE for each in A}
    compared, judged = compare(A, real, lab), verdicts(A, real, lab)
    for table in (
        comparison_table(compared),
        verdict_table(judged),
        cell_table([seen(each) for each in A], lab),
    ):
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}
    assert (shown(NAN), shown(math.inf), shown(0.12345)) == ("-", "never", "0.123")


def test_an_engine_that_cannot_keep_its_promise_is_named() -> None:
    assert too_slow(0.1, 0.15) == []
    assert "takes 0.3 s a token, and 0.15 s are promised" in too_slow(0.3, 0.15)[0]


def test_a_load_process_that_could_not_keep_up_is_named() -> None:
    lab = {each.title: BASE for each in A}
    compared = compare(A, lab, lab)
    good, bad = seen(A[0]), seen(A[1], late=0.5)
    assert not any("keep up" in note for note in notes_of([good], compared))
    assert "a 2" in next(n for n in notes_of([good, bad], compared) if "keep up" in n)
