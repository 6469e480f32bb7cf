"""Measured against predicted, and both against the experiments' bars. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from surgetank.control.bench.scenarios.plan import Cell
from surgetank.control.bench.scenarios.rows import Figures, typical
from surgetank.control.lab.headline.experiment import Bar

WITHIN = 0.15  # of the measured value, for what the lab says
COMPARED = (("ttft_p50", "p50 TTFT, s"), ("ttft_p99", "p99 TTFT, s"), ("goodput", "goodput"))
BARS: Mapping[str, tuple[Bar, ...]] = {
    "a": (Bar("goodput_of_peak", 0.95, floor=True), Bar("quartile_success_max_over_min", 1.5)),
    "b": (Bar("recovery_seconds", 2.0), Bar("times_let_in", 1.1)),
    "d": (
        Bar("high_ttft_p99_of_unloaded", 1.25),
        Bar("high_success", 0.999, floor=True),
        Bar("low_class_share", 0.05, floor=True),
    ),
}

Found = Mapping[str, Figures]  # by the cell's title


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of one cell."""

    cell: str
    measure: str
    measured: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Predicted over measured; nan where one of them is missing."""
        return self.predicted / self.measured if self.measured else math.nan

    @property
    def holds(self) -> bool:
        """Whether the lab was as near as it should be; nan is not."""
        return abs(self.ratio - 1.0) <= WITHIN


@dataclass(frozen=True, slots=True)
class Verdict:
    """One bar of one scenario."""

    scenario: str
    bar: Bar
    measured: float
    predicted: float

    @property
    def holds(self) -> bool:
        """The real product meets it."""
        return self.bar.holds(self.measured)


def middle(found: Sequence[Figures]) -> Figures:
    """Each figure's median over several runs of one cell."""
    values: dict[str, Any] = {}
    for each in fields(Figures):
        if each.name == "quartiles":
            values["quartiles"] = _middle_quartiles(found)
        else:
            values[each.name] = typical([getattr(one, each.name) for one in found])
    return Figures(**values)


def _middle_quartiles(found: Sequence[Figures]) -> tuple[float, ...]:
    return tuple(typical(quarter) for quarter in zip(*(one.quartiles for one in found)))


def compare(cells: Sequence[Cell], measured: Found, predicted: Found) -> list[Comparison]:
    """All compared measures of all cells."""
    return [
        Comparison(
            cell.title,
            words,
            getattr(measured[cell.title], key),
            getattr(predicted[cell.title], key),
        )
        for cell in cells
        for key, words in COMPARED
    ]


def verdicts(cells: Sequence[Cell], measured: Found, predicted: Found) -> list[Verdict]:
    """Each played scenario's bars."""
    found = []
    for letter, bars in BARS.items():
        mine = [cell for cell in cells if cell.scenario == letter]
        if mine:
            real, lab = values(letter, mine, measured), values(letter, mine, predicted)
            found += [Verdict(letter, bar, real[bar.key], lab[bar.key]) for bar in bars]
    return found


def values(letter: str, cells: Sequence[Cell], found: Found) -> dict[str, float]:
    """What a scenario's bars look at, over its cells."""
    each = [found[cell.title] for cell in cells]
    if letter == "a":
        peak = max(one.goodput for one in each)
        shares = each[-1].quartiles
        return {
            "goodput_of_peak": each[-1].goodput / peak if peak else math.nan,
            "quartile_success_max_over_min": _spread(shares),
        }
    if letter == "b":
        return {
            "recovery_seconds": worst([one.recovery for one in each]),
            "times_let_in": worst([one.times_let_in for one in each]),
        }
    alone, loaded = each[0], each[1:]
    return {
        "high_ttft_p99_of_unloaded": worst(
            [one.high_ttft_p99 / alone.high_ttft_p99 for one in loaded]
        ),
        "high_success": -worst([-one.high_success for one in loaded]),
        "low_class_share": -worst([-one.low_share for one in loaded]),
    }


def worst(numbers: Sequence[float]) -> float:
    """The largest; nan, which could not be measured, is worst of all."""
    return math.nan if any(map(math.isnan, numbers)) or not numbers else max(numbers)


def _spread(shares: Sequence[float]) -> float:
    if not shares or any(map(math.isnan, shares)):
        return math.nan
    return max(shares) / min(shares) if min(shares) else math.inf
