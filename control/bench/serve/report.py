"""A run as people read it: the field's table, what retrying did, and what to mind."""

from collections.abc import Mapping
from typing import Any

from surgetank.control.bench.document import Table

_COUNTS = (
    ("Successful requests", "completed", "{:,.0f}"),
    ("Failed requests", "failed", "{:,.0f}"),
    ("Maximum concurrent requests", "max_concurrent_requests", "{:,.0f}"),
    ("Benchmark duration (s)", "duration", "{:.2f}"),
    ("Total input tokens", "total_input_tokens", "{:,.0f}"),
    ("Total generated tokens", "total_output_tokens", "{:,.0f}"),
    ("Request throughput (req/s)", "request_throughput", "{:.2f}"),
    ("Request goodput (req/s)", "request_goodput", "{:.2f}"),
    ("Share of calls that were good", "good_share", "{:.1%}"),
    ("Output token throughput (tok/s)", "output_throughput", "{:.2f}"),
    ("Total token throughput (tok/s)", "total_token_throughput", "{:.2f}"),
)
_LATENCIES = (
    ("TTFT, from the intended time", "ttft"),
    ("TTFT of the served attempt", "served_ttft"),
    ("TPOT (excl. 1st token)", "tpot"),
    ("ITL", "itl"),
    ("E2EL", "e2el"),
)
_BUSY = 0.8  # of a core: beyond it the generator measures itself
_LATE = 0.1  # of the median TTFT


def tables_of(figures: Mapping[str, Any], errors: Mapping[str, int]) -> list[Table]:
    """Throughput; latencies; attempts."""
    counts = [[label, _shown(figures[key], form)] for label, key, form in _COUNTS]
    statistics = ("mean", "median", "p90", "p99")
    latencies = [
        [label, *(_shown(figures[f"{word}_{name}_ms"], "{:,.2f}") for word in statistics)]
        for label, name in _LATENCIES
    ]
    return [
        {"title": "Serving benchmark", "columns": ["figure", "value"], "rows": counts},
        {
            "title": "Latency, ms, of successful requests",
            "columns": ["", "mean", "median", "P90", "P99"],
            "rows": latencies,
        },
        {
            "title": "Attempts",
            "columns": ["figure", "value"],
            "rows": _attempts(figures, errors),
        },
    ]


def client_table(kinds: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row a kind of client."""
    forms = ("{:,}", "{:,}", "{:.1%}", "{:.3f}", "{:,.1f}", "{:,.1f}")
    rows = [
        [kind, *(_shown(value, form) for value, form in zip(values.values(), forms, strict=True))]
        for kind, values in kinds.items()
    ]
    columns = ["client", "calls", "successful", "good", "attempts/call"]
    columns += ["median TTFT, ms", "median E2EL, ms"]
    return {"title": "By client", "columns": columns, "rows": rows}


def _attempts(figures: Mapping[str, Any], errors: Mapping[str, int]) -> list[list[str]]:
    obeyed = f"{figures['advice_obeyed']} of {figures['advised_again']} that came back"
    never = f"{figures['never_obeyed']} of {figures['told_never']}"
    return [
        ["Attempts per call", _shown(figures["attempts_per_request"], "{:.3f}")],
        *([f"Refused: {reason}", str(count)] for reason, count in figures["refusals"].items()),
        ["Told when to come back", str(figures["advised"])],
        ["Waits obeyed", obeyed],
        ["Told not to come back, and obeyed", never],
        *([f"Failed in the end: {error}", str(count)] for error, count in errors.items()),
    ]


def notes_of(figures: Mapping[str, Any]) -> list[str]:
    """How far the lengths were met, and what the generator's own work may have added."""
    notes = []
    prompt, output = figures["prompt_tokens_error"], figures["output_tokens_error"]
    if prompt is not None:
        notes.append(f"Prompts missed their length by {prompt:.1%} on average (server's count).")
    if output is not None and output > 0:
        notes.append(f"Answers missed theirs by {output:.1%}.")
    if not figures["counted_by_server"]:
        notes.append("The streams carry no counts: tokens are the pieces that came.")
    late, lag = figures["late_p99_ms"], figures["lag_p99_ms"]
    notes.append(
        f"The generator: calls left up to {late:.1f} ms late (P99), its loop woke up to {lag:.1f} "
        f"ms late (P99), {figures['generator_cpu']:.0%} of a core. Lateness is in the latencies."
    )
    median = figures["median_ttft_ms"]
    if figures["generator_cpu"] > _BUSY or (median is not None and lag > _LATE * median):
        notes.append("That is much beside the latencies: the generator measured itself too.")
    return notes


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
