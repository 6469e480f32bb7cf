"""Runs kept in a file, one JSON line each, and the newest one beside the last of its kind."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surgetank.control.bench.document import BenchError, Table

# What is compared, and whether more of it is better.
COMPARED = {
    "request_goodput": True,
    "request_throughput": True,
    "output_throughput": True,
    "p99_ttft_ms": False,
}
SHOWN = ("median_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "p99_itl_ms", "attempts_per_request")


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure, now and then. `change` now / then; nan where one of them is missing."""

    name: str
    now: float | None
    then: float | None
    worse: bool

    @property
    def change(self) -> float:
        """Infinite when there was nothing before and there is something now."""
        if self.now is None or self.then is None:
            return math.nan
        if self.then == 0:
            return 1.0 if self.now == 0 else math.inf
        return self.now / self.then


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a run; OSError when that cannot be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def last_equal(path: Path, settings_hash: str) -> dict[str, Any] | None:
    """The newest whole run of these settings. Raises BenchError for a line that is none."""
    if not path.exists():
        return None
    found = None
    for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            equal = line["settings_hash"] == settings_hash and not line["interrupted"]
            figures = line["figures"]
        except (ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{path}, line {number} is no run: {error}") from error
        if equal and isinstance(figures, dict):
            found = line
    return found


def compare(
    now: Mapping[str, Any], then: Mapping[str, Any], tolerance: float
) -> tuple[list[Ratio], bool]:
    """Each figure beside the earlier one, and whether any is worse by more than the tolerance (a
    share of the earlier one). A figure that was there and is missing now is worse."""
    ratios = [_ratio(name, more, now, then, tolerance) for name, more in COMPARED.items()]
    shown = [Ratio(name, now.get(name), then.get(name), False) for name in SHOWN]
    return ratios + shown, any(each.worse for each in ratios)


def _ratio(
    name: str, more: bool, now: Mapping[str, Any], then: Mapping[str, Any], tolerance: float
) -> Ratio:
    is_, was = now.get(name), then.get(name)
    if was is None:
        return Ratio(name, is_, was, False)
    if is_ is None:
        return Ratio(name, is_, was, True)
    worse = is_ < was * (1 - tolerance) if more else is_ > was * (1 + tolerance)
    return Ratio(name, is_, was, worse)


def table_of(ratios: list[Ratio], when: str) -> Table:
    """For people."""
    rows = [
        [
            each.name,
            _shown(each.now),
            _shown(each.then),
            "-" if math.isnan(each.change) else f"{each.change:.3f}",
            ("worse" if each.worse else "ok") if each.name in COMPARED else "",
        ]
        for each in ratios
    ]
    title = f"Beside the last run of equal settings ({when})"
    return {"title": title, "columns": ["figure", "now", "then", "ratio", ""], "rows": rows}


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
