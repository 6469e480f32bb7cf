"""From rows to figures: who is good, by quartiles, after a stall, and by class."""

import math
from collections.abc import Sequence

import pytest

from surgetank.admission.laws_config import LawsConfig
from surgetank.control.bench.load.numbers import quantile
from surgetank.control.bench.scenarios.plan import GRPC, HASTY, LOW, OPENAI, Call, Cell
from surgetank.control.bench.scenarios.rows import (
    Judged,
    Prices,
    Row,
    figures,
    low_share,
    quartiles,
    recovery,
    times_let_in,
    typical,
)
from surgetank.control.lab.steptime import StepModel
from surgetank.telemetry.slo import SloTargets

PRICES = Prices(
    StepModel(t0=0.02, a=0.001, b=0.0, c=0.0), 4.0, SloTargets(ttft=1.0, tpot=0.1), LawsConfig()
)
REFUSED = Row(sent=0.0, heard=None, ended=0.1, ok=False, attempts=4, let_in=0, error="X")


def served(call: Call, ttft: float = 0.2, later: float = 0.3, waited: float = 0.0) -> Row:
    sent = call.at + waited
    return Row(sent, sent + ttft, sent + ttft + later, ok=True, attempts=1, let_in=1)


def judged(calls: Sequence[Call], rows: Sequence[Row]) -> list[Judged]:
    return PRICES.judge(calls, rows)


def test_a_call_costs_its_prompt_and_its_share_of_the_steps() -> None:
    (each,) = judged([Call(0.0, 100, 10)], [served(Call(0.0, 100, 10))])
    assert each.cost == pytest.approx(100 * 0.001 + 10 * 0.02 / 4)
    assert each.ttft == pytest.approx(0.2)
    assert each.wait == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("ttft", "later", "waited", "good", "at_once"),
    [
        (0.9, 0.8, 0.0, True, True),
        (1.1, 0.8, 0.0, False, False),  # first token late
        (0.5, 1.0, 0.0, False, False),  # 9 tokens after the first have 0.9 s
        (0.5, 0.8, 3.0, True, False),  # good of its attempt, which came late
    ],
)
def test_good_is_within_both_targets(
    ttft: float, later: float, waited: float, good: bool, at_once: bool
) -> None:
    call = Call(5.0, 10, 10)
    (each,) = judged([call], [served(call, ttft, later, waited)])
    assert (each.good, each.at_once) == (good, at_once)


def test_an_answer_that_comes_as_a_whole_has_both_targets_for_it() -> None:
    call = Call(5.0, 10, 10, GRPC)
    for ended, good in ((5.0 + 1.0 + 0.9, True), (5.0 + 1.0 + 0.95, False)):
        row = Row(sent=5.0, heard=None, ended=ended, ok=True, attempts=0, let_in=0)
        assert judged([call], [row])[0].good is good


def test_the_low_class_has_its_own_patience() -> None:
    call = Call(0.0, 10, 10, OPENAI, int(LOW))
    assert judged([call], [served(call, ttft=9.0)])[0].good
    assert not judged([call], [served(call, ttft=11.0)])[0].good


def test_quartiles_go_by_the_prompt() -> None:
    calls = [Call(0.0, size, 5) for size in (8, 1, 7, 2, 6, 3, 5, 4)]
    rows = [served(call) if call.prompt <= 5 else REFUSED for call in calls]
    assert quartiles(judged(calls, rows)) == (1.0, 1.0, 0.5, 0.0)
    assert quartiles(judged(calls[:3], rows[:3])) == ()


def stalled(back: float) -> tuple[Cell, list[Judged]]:
    """Two calls a second; none is served from the stall's beginning until `back` seconds after."""
    calls = tuple(Call(0.5 * n, 10, 5, HASTY) for n in range(60))
    cell = Cell("b", "x", calls, 2.0, 30.0, 0.9, (10.0, 15.0))
    rows = [REFUSED if 8.0 <= call.at < 15.0 + back else served(call) for call in calls]
    return cell, judged(calls, rows)


@pytest.mark.parametrize(("back", "expected"), [(0.0, 0.0), (3.0, 3.0), (20.0, math.inf)])
def test_recovery_is_when_cohorts_have_their_goodput_back(back: float, expected: float) -> None:
    cell, calls = stalled(back)
    assert recovery(cell, calls, timeout=2.0) == expected


def test_nothing_can_be_recovered_that_was_not_there() -> None:
    cell, calls = stalled(0.0)
    rows = [REFUSED if each.call.at < 10.0 else each.row for each in calls]
    assert math.isnan(recovery(cell, judged([e.call for e in calls], rows), timeout=2.0))


def test_a_relapse_is_no_recovery() -> None:
    cell, calls = stalled(0.0)
    rows = [REFUSED if each.call.at >= 24.0 else each.row for each in calls]
    relapsed = judged([each.call for each in calls], rows)
    assert recovery(cell, relapsed, timeout=2.0) == math.inf


def test_times_let_in_counts_touched_calls_that_were_let_in() -> None:
    cell, calls = stalled(0.0)
    rows = [
        Row(each.call.at, None, 20.0, ok=False, attempts=4, let_in=3)
        if each.call.at == 10.0
        else each.row
        for each in calls
    ]
    again = judged([each.call for each in calls], rows)
    served_count = sum(8.0 <= e.call.at < 20.0 and e.row.let_in == 1 for e in again)
    assert times_let_in(cell, again, timeout=2.0) == (3 + served_count) / (1 + served_count)


def test_the_low_share_is_of_served_work() -> None:
    calls = [Call(0.0, 100, 5), Call(0.0, 100, 5, OPENAI, int(LOW)), Call(0.0, 300, 5)]
    rows = [served(calls[0]), served(calls[1]), REFUSED]
    assert low_share(judged(calls, rows)) == 0.5
    assert math.isnan(low_share(judged(calls[:1], rows[:1])))


def test_figures_leave_the_warm_up_out() -> None:
    calls = (Call(1.0, 10, 5), Call(3.0, 10, 5), Call(4.0, 10, 5))
    cell = Cell("a", "x", calls, 2.0, 10.0, 1.0)
    rows = [REFUSED, served(calls[1], ttft=0.2), served(calls[2], ttft=0.4)]
    found = figures(cell, judged(calls, rows), 4.0, grpc_attempts=1.5)
    assert (found.calls, found.success, found.attempts, found.grpc_attempts) == (2, 1.0, 1.0, 1.5)
    assert found.ttft_p50 == pytest.approx(0.3)
    assert found.ttft_p99 == pytest.approx(0.398)
    assert found.goodput == pytest.approx(2 * (0.01 + 5 * 0.005) / 8)
    assert math.isnan(found.recovery)


def test_quantiles_and_medians() -> None:
    assert quantile([4.0, None, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert math.isnan(quantile([None], 0.5))
    assert quantile([math.inf, math.inf], 0.99) == math.inf
    assert typical([1.0, math.nan, 3.0]) == 2.0
    assert math.isnan(typical([1.0, math.nan]))
