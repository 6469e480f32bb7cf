"""The storm's table: one row a figure, one column a run."""

from surgetank.control.demo.storm import PROTECTED, UNPROTECTED, Result
from surgetank.control.demo.verdict import Verdict


def _seconds(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.2f} s"


def _cells(verdict: Verdict, observed: float) -> list[str]:
    return [
        f"{verdict.goodput_before:.1f} /s ({verdict.success_before:.0%})",
        f"{verdict.goodput_after:.1f} /s ({verdict.success_after:.0%})",
        f"{verdict.attempts_per_call:.2f}",
        _seconds(verdict.ttft_p50, "-"),
        _seconds(verdict.ttft_p99, "-"),
        _seconds(verdict.recovery, f"not within {observed:.0f} s"),
    ]


FIGURES = [
    "answered before the stall (of calls made)",
    "answered after the stall (of calls made)",
    "HTTP attempts per call, from the stall on",
    "TTFT p50, streamed calls, from the stall on",
    "TTFT p99, streamed calls, from the stall on",
    "time to recover after the stall",
]


def as_rows(result: Result) -> tuple[list[str], list[list[str]]]:
    """Header and rows for people."""
    runs = (UNPROTECTED, PROTECTED)
    columns = []
    for name in runs:
        episode = result.episodes[name]
        columns.append(_cells(result.verdicts[name], episode.duration - episode.stall_end))
    return ["", *runs], [list(row) for row in zip(FIGURES, *columns, strict=True)]
