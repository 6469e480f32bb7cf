"""The storm's table: one row a figure, one column a run; for the terminal and for the README."""

from collections.abc import Mapping, Sequence
from typing import Any

RUNS = ("unprotected", "protected")
OWN, OTHERS = "storm", "storms"  # the README's blocks: the embedded engine, other makers'


def _seconds(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.1f} s"


def _cells(verdict: Mapping[str, Any]) -> list[str]:
    return [
        f"{verdict['success_before']:.0%}",
        f"{verdict['success_after']:.0%}",
        f"{verdict['goodput_after']:.1f} /s",
        f"{verdict['attempts_per_call']:.2f}",
        _seconds(verdict["ttft_p50"], "-"),
        _seconds(verdict["ttft_p99"], "-"),
        _seconds(verdict["recovery"], f"not within {verdict['observed']:.0f} s"),
    ]


FIGURES = [
    "calls answered before the stall",
    "calls answered after the stall",
    "goodput after the stall",
    "HTTP attempts per call, from the stall on",
    "TTFT p50, streamed calls, from the stall on",
    "TTFT p99, streamed calls, from the stall on",
    "time to recover after the stall",
]


def as_rows(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a storm's figures (storm.as_document)."""
    columns = [_cells(document["verdicts"][name]) for name in RUNS]
    return ["", *RUNS], [list(row) for row in zip(FIGURES, *columns, strict=True)]


def as_markdown(document: Mapping[str, Any]) -> str:
    """The README's table of the embedded engine, and what it was measured with."""
    header, rows = as_rows(document)
    note = f"Measured on {document['date']} by `surgetank demo storm` on {_how(document)}"
    return "\n".join([*_lines(header, rows), "", note])


def as_comparison(documents: Sequence[Mapping[str, Any]]) -> str:
    """The README's table of other makers' engines, one column each: straight to it, and through
    the gate. The documents are of one machine and one plan."""
    columns = []
    for document in documents:
        straight, gated = (_cells(document["verdicts"][name]) for name in RUNS)
        columns.append([f"{a} → {b}" for a, b in zip(straight, gated, strict=True)])
    rows = [list(row) for row in zip(FIGURES, *columns, strict=True)]
    lines = _lines(["", *(document["engine"] for document in documents)], rows)
    notes = [
        f"{each['engine']}: measured on {each['date']} by `surgetank demo storm --backend` on "
        f"{_how(each)}"
        for each in documents
    ]
    return "\n".join([*lines, "", *notes])


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def _how(document: Mapping[str, Any]) -> str:
    plan = document["plan"]
    capacity, offered = document["capacity_calls_per_second"], document["offered_calls_per_second"]
    return (
        f"{document['machine']}: {offered:.1f} calls/s offered ({plan['load']:.0%} of the "
        f"{capacity:.1f} measured), each by the `openai` client with its two default retries and a "
        f"timeout of {document['timeout_seconds']:.1f} s; engine stopped for {plan['stall']:.0f} s."
    )


def replace_block(page: str, name: str, text: str) -> str:
    """The page with its block of that name replaced; ValueError when it has none."""
    begin, end = f"<!-- {name}: generated, see `surgetank docs storm` -->", f"<!-- /{name} -->"
    at, until = page.find(begin), page.find(end)
    if at < 0 or until < at:
        raise ValueError(f"no block between {begin} and {end}")
    return f"{page[:at]}{begin}\n{text}\n{page[until:]}"
