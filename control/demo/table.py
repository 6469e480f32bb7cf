"""The storm's table: one row a figure, one column a run; for the terminal and for the README."""

from collections.abc import Mapping
from typing import Any

RUNS = ("unprotected", "protected")
BEGIN, END = "<!-- storm: generated, see `surgetank docs storm` -->", "<!-- /storm -->"


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
    """The README's block: the table and what it was measured with."""
    header, rows = as_rows(document)
    lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
    plan = document["plan"]
    capacity, offered = document["capacity_calls_per_second"], document["offered_calls_per_second"]
    engine = document.get("engine")
    before = f" --backend`, before {engine}, on" if engine else "` on"
    note = (
        f"Measured on {document['date']} by `surgetank demo storm{before} {document['machine']}: "
        f"{offered:.1f} calls/s offered ({plan['load']:.0%} of the {capacity:.1f} measured), "
        "each by the `openai` client with its two default retries and a timeout of "
        f"{document['timeout_seconds']:.1f} s; engine stopped for {plan['stall']:.0f} s."
    )
    return "\n".join([BEGIN, *lines, "", note, END])


def replace_block(page: str, block: str) -> str:
    """The page with its storm block replaced; ValueError when it has none."""
    start, end = page.find(BEGIN), page.find(END)
    if start < 0 or end < start:
        raise ValueError(f"no block between {BEGIN} and {END}")
    return page[:start] + block + page[end + len(END) :]
