"""What an experiment is: measurements of one seed, and bars that the worst seed must meet."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class UnknownExperiment(ValueError):
    """No experiment has that name; says which there are."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit for one measured value, as a floor or as a ceiling."""

    key: str
    limit: float
    floor: bool = False

    def worst(self, values: Sequence[float]) -> float:
        """The worst of several values; nan (nothing could be measured) is worst of all."""
        if any(math.isnan(value) for value in values):
            return math.nan
        return min(values) if self.floor else max(values)

    def holds(self, value: float) -> bool:
        """Whether the value meets it; nan does not."""
        return value >= self.limit if self.floor else value <= self.limit

    def __str__(self) -> str:
        return f"{self.key} {'>=' if self.floor else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A claim. `measure` plays one seed and returns a value for each bar."""

    name: str
    bars: tuple[Bar, ...]
    measure: Callable[[int], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Result:
    """An experiment's outcome over all its seeds."""

    experiment: Experiment
    values: dict[str, float]  # of the worst seed, for each bar

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def holds(self) -> bool:
        """Every bar is met in every seed."""
        return all(bar.holds(self.values[bar.key]) for bar in self.experiment.bars)

    def rows(self) -> list[list[str]]:
        """A line for each bar, for people: experiment, measured, bar, holds."""
        return [
            [
                self.name if number == 0 else "",
                f"{self.values[bar.key]:.4g}",
                str(bar),
                "yes" if bar.holds(self.values[bar.key]) else "NO",
            ]
            for number, bar in enumerate(self.experiment.bars)
        ]

    def as_json(self) -> dict[str, Any]:
        """For programs; null where nothing could be measured."""
        return {
            "name": self.name,
            "measured": {
                key: float(f"{value:.6g}") if math.isfinite(value) else None
                for key, value in self.values.items()
            },
            "bar": {
                bar.key: f"{'>=' if bar.floor else '<='} {bar.limit:g}"
                for bar in self.experiment.bars
            },
            "holds": self.holds,
        }


def judge(experiment: Experiment, seeds: Sequence[Mapping[str, float]]) -> Result:
    """The worst of all seeds, bar by bar."""
    return Result(experiment, worst(experiment.bars, seeds))


def worst(bars: Sequence[Bar], cells: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """For each bar the worst of its values in all cells."""
    return {bar.key: bar.worst([cell[bar.key] for cell in cells]) for bar in bars}
