"""The headline's own arithmetic, on calls made by hand; and one experiment as it really runs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from surgetank.control.lab.headline.experiment import (
    Bar,
    Experiment,
    UnknownExperiment,
    judge,
    worst,
)
from surgetank.control.lab.headline.fairness import jain
from surgetank.control.lab.headline.ground import SLO
from surgetank.control.lab.headline.stall import recovery
from surgetank.control.lab.headline.step_budget import _worst
from surgetank.control.lab.headline.table import EXPERIMENTS, measure, run_all
from surgetank.control.lab.judge import Judged


def every_tenth_of_a_second(until: float) -> Judged:
    """A call each .1 s, each heard after .5 s and good, each worth one engine-second."""
    arrived = np.arange(0.0, until, 0.1)
    ones, yes = np.ones(len(arrived), dtype=np.int64), np.ones(len(arrived), dtype=np.bool_)
    return Judged(
        number=np.arange(len(arrived)),
        arrived=arrived,
        heard=arrived + 0.5,
        ended=arrived + 1.0,
        prompt=ones,
        output=ones,
        tenant=ones,
        priority=ones,
        ok=yes,
        good=yes,
        ttft=np.full(len(arrived), 0.5),
        tpot=np.full(len(arrived), 0.05),
        attempts=ones,
        admitted=ones,
        cost=np.ones(len(arrived)),
    )


def bad_between(begin: float, end: float) -> Judged:
    calls = every_tenth_of_a_second(45.0)
    return replace(calls, good=calls.good & ~calls.between(begin, end))


USUAL = every_tenth_of_a_second(45.0)


def test_recovery_is_when_every_later_window_is_whole_again() -> None:
    assert recovery(USUAL, bad_between(9.0, 20.0)) == 0.0
    # Two bad calls of a window's twenty are too many: the last such window begins at 22.75.
    assert recovery(USUAL, bad_between(9.0, 22.999)) == pytest.approx(3.0, abs=0.26)
    assert recovery(USUAL, bad_between(9.0, 45.0)) == pytest.approx(13.25)  # never


def test_a_relapse_is_no_recovery() -> None:
    calls = bad_between(9.0, 20.0)
    relapsed = replace(calls, good=calls.good & ~calls.between(30.0, 31.0))
    assert recovery(USUAL, relapsed) > 10.0


def test_to_be_told_to_come_back_later_is_no_recovery() -> None:
    """Served well in the end, after a wait of three seconds: the attempt was good, not the call."""
    waited = np.where(USUAL.between(9.0, 25.0), USUAL.heard + 3.0, USUAL.heard)
    assert recovery(USUAL, replace(USUAL, heard=waited)) == pytest.approx(5.0, abs=0.26)


def test_recovery_asks_for_what_the_same_calls_get_without_the_stall() -> None:
    often_bad = replace(USUAL, good=USUAL.number % 2 == 0)
    assert recovery(often_bad, often_bad) == 0.0


def test_jain() -> None:
    assert jain(np.array([1.0, 1.0, 1.0, 1.0])) == 1.0
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain(np.array([1.0, 2.0])) == pytest.approx(0.9)
    assert math.isnan(jain(np.zeros(3)))


def test_the_worst_seed_decides() -> None:
    bars = (Bar("high", 0.9, floor=True), Bar("low", 2.0))
    experiment = Experiment("e", bars, lambda seed: {})
    good = judge(experiment, [{"high": 0.95, "low": 1.0}, {"high": 0.91, "low": 2.0}])
    assert good.holds
    assert good.as_json() == {
        "name": "e",
        "measured": {"high": 0.91, "low": 2.0},
        "bar": {"high": ">= 0.9", "low": "<= 2"},
        "holds": True,
    }
    assert not judge(experiment, [{"high": 0.95, "low": 1.0}, {"high": 0.89, "low": 1.0}]).holds


def test_what_could_not_be_measured_does_not_hold() -> None:
    experiment = Experiment("e", (Bar("low", 2.0),), lambda seed: {})
    result = judge(experiment, [{"low": 1.0}, {"low": math.nan}])
    assert not result.holds
    assert result.as_json()["measured"] == {"low": None}


def test_what_could_not_be_measured_in_one_cell_does_not_hold_either() -> None:
    bars = (Bar("low", 2.0), Bar("high", 0.5, floor=True))
    values = worst(bars, [{"low": 1.1, "high": 0.9}, {"low": math.nan, "high": math.nan}])
    assert math.isnan(values["low"])
    assert math.isnan(values["high"])


def test_calls_of_one_token_make_a_window_that_cannot_be_judged() -> None:
    calls = every_tenth_of_a_second(45.0)
    assert _worst(calls) == pytest.approx(0.05 / SLO.tpot)
    silent = np.where(calls.between(10.0, 12.0), math.nan, calls.tpot)
    assert math.isnan(_worst(replace(calls, tpot=silent)))


def test_unknown_experiments_are_told_the_known_ones() -> None:
    with pytest.raises(UnknownExperiment, match="there are: goodput, stall"):
        run_all([1], ["speed"])


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_measures_each_of_its_bars(name: str) -> None:
    values = measure(name, seed=1)
    assert set(values) == {bar.key for bar in EXPERIMENTS[name].bars}
    assert all(math.isfinite(value) for value in values.values())
