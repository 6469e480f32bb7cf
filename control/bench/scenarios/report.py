"""The run as a document: tables for people, figures for programs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from surgetank.control.bench.document import Table
from surgetank.control.bench.load.watch import Strain
from surgetank.control.bench.scenarios.plan import Cell
from surgetank.control.bench.scenarios.rows import Figures
from surgetank.control.bench.scenarios.verdict import WITHIN, Comparison, Verdict

_LATE, _BUSY = 0.1, 0.85  # seconds and share of a core, above which the load process was too slow


@dataclass(frozen=True, slots=True)
class Seen:
    """One measured cell."""

    cell: Cell
    figures: Figures
    strain: Strain
    drift: float  # of the engine's steps against the calibration's model
    errors: Mapping[str, int]  # calls without an answer, by the class of their error

    @property
    def overstrained(self) -> bool:
        """Whether the load process could not keep up: then the figures are its own."""
        return self.strain.late_p99 > _LATE or self.strain.cpu > _BUSY


def comparison_table(found: Sequence[Comparison]) -> Table:
    """Every measure with its goal."""
    rows = []
    for number, each in enumerate(found):
        first = number == 0 or found[number - 1].cell != each.cell
        rows.append(
            [
                each.cell if first else "",
                each.measure,
                shown(each.measured),
                shown(each.predicted),
                shown(each.ratio),
                f"within {WITHIN:.0%}",
                _yes(each.holds),
            ]
        )
    columns = ["cell", "measure", "measured", "lab", "lab / measured", "goal", "holds"]
    return Table(title="The lab's prediction beside the measurement", columns=columns, rows=rows)


def verdict_table(found: Sequence[Verdict]) -> Table:
    """Every bar of the experiments."""
    rows = [
        [
            each.scenario,
            shown(each.measured),
            shown(each.predicted),
            str(each.bar),
            _yes(each.holds),
        ]
        for each in found
    ]
    columns = ["scenario", "measured", "lab", "bar", "holds"]
    return Table(title="The experiments' bars on the real engine", columns=columns, rows=rows)


def cell_table(seen: Sequence[Seen], predicted: Mapping[str, Figures]) -> Table:
    """What else there is to say of each cell; pairs are measured and the lab's."""
    pairs = (
        ("success", "success"),
        ("wait_p50", "p50 wait, s"),
        ("wait_p99", "p99 wait, s"),
        ("attempts", "openai attempts"),
        ("grpc_attempts", "gRPC attempts"),
        ("recovery", "recovery, s"),
        ("times_let_in", "times let in"),
    )
    columns = ["cell", "calls", *(words for _, words in pairs)]
    columns += ["quartiles", "step time", "late p99, ms", "load CPU"]
    rows = []
    for each in seen:
        real, lab = each.figures, predicted[each.cell.title]
        both = [f"{shown(getattr(real, key))} | {shown(getattr(lab, key))}" for key, _ in pairs]
        quartiles = " ".join(shown(share) for share in real.quartiles)
        strain = [f"{1e3 * each.strain.late_p99:.0f}", f"{each.strain.cpu:.0%}"]
        row = [each.cell.title, str(real.calls), *both, quartiles, f"x{shown(each.drift)}"]
        rows.append([*row, *strain])
    return Table(title="Each cell, measured | lab", columns=columns, rows=rows)


def notes_of(seen: Sequence[Seen], compared: Sequence[Comparison]) -> list[str]:
    """What a reader has to know."""
    near = sum(each.holds for each in compared)
    notes = [
        f"{near} of {len(compared)} predictions are within {WITHIN:.0%} of the measurement",
        "goodput: engine-seconds of good calls per second; TTFT: of the attempt that was served; "
        "wait: from the call's arrival to its first token; both of openai's streams",
        "the lab has the calls' times, sizes and clients, the step model of the calibration times "
        "each cell's own step time, and the median of its seeds",
    ]
    late = [each.cell.title for each in seen if each.overstrained]
    if late:
        notes.append(f"the load process could not keep up, do not trust: {'; '.join(late)}")
    return notes


def too_slow(step: float, target: float) -> list[str]:
    """A sentence where a full engine cannot keep its promise: then little can be good at all."""
    if step <= target:
        return []
    return [
        f"a full engine takes {shown(step)} s a token, and {shown(target)} s are promised: it is "
        "too slow for these targets, or the machine is busy; see --set slo.tpot"
    ]


def as_json(
    seen: Sequence[Seen],
    predicted: Mapping[str, Figures],
    compared: Sequence[Comparison],
    judged: Sequence[Verdict],
) -> dict[str, Any]:
    """The figures; null where there is nothing to say, or where it is infinite."""
    return {
        "cells": [
            {
                "cell": each.cell.title,
                "scenario": each.cell.scenario,
                "load": each.cell.load,
                "measured": _plain(asdict(each.figures)),
                "predicted": _plain(asdict(predicted[each.cell.title])),
                "drift": _plain(each.drift),
                "errors": dict(each.errors),
                "load_process": {
                    "lag_p99": _plain(each.strain.lag_p99),
                    "late_p99": _plain(each.strain.late_p99),
                    "cpu": _plain(each.strain.cpu),
                    "overstrained": each.overstrained,
                },
            }
            for each in seen
        ],
        "comparisons": [
            _plain(asdict(each) | {"ratio": each.ratio, "goal": WITHIN}) | {"holds": each.holds}
            for each in compared
        ],
        "experiments": [
            {
                "name": each.scenario,
                "bar": str(each.bar),
                "measured": _plain(each.measured),
                "predicted": _plain(each.predicted),
                "holds": each.holds,
            }
            for each in judged
        ],
    }


def shown(value: float) -> str:
    """Three digits; a dash for nothing, `never` for infinite."""
    if math.isnan(value):
        return "-"
    return "never" if math.isinf(value) else f"{value:.3g}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "NO"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
