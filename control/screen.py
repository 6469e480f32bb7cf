"""The screen of `surgetank top`: one answer of the admin API, drawn."""

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from surgetank.control.cli.output import VERDICT_STYLE, seconds

BAR = 24  # characters
_THIS = "surgetank top"  # the next command where all is well


def screen(answer: dict[str, Any]) -> Group:
    """The whole picture."""
    return Group(_head(answer), Text(), _queue(answer), Text(), _engine(answer), _notes(answer))


def _head(answer: dict[str, Any]) -> Table:
    found = answer["diagnosis"]
    verdict = Text(found["verdict"], style=f"bold {VERDICT_STYLE.get(found['verdict'], 'magenta')}")
    if answer["draining"]:
        verdict.append("  draining", style="yellow")
    grid = _grid()
    grid.add_row("verdict", verdict)
    for line in found["evidence"][:2]:
        grid.add_row("", Text(line))
    if found["next"] != _THIS:
        grid.add_row("next", Text(found["next"], style="cyan"))
    model = answer["model"] or "no engine"
    grid.add_row("model", Text(f"{model}, up for {seconds(answer['uptime'])}"))
    rates = (
        f"{answer['first']:.1f} first  {answer['retries']:.1f} retries  "
        f"{answer['served']:.1f} served  {answer['dropped']:.1f} refused or dropped  "
        f"{answer['output_tokens']:.0f} tokens"
    )
    grid.add_row("per second", Text(rates))
    return grid


def _queue(answer: dict[str, Any]) -> Table:
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("waiting", "first", "retries", "tokens", "oldest"):
        drawn.add_column(column, justify="left" if column == "waiting" else "right")
    for level in answer["levels"]:
        drawn.add_row(
            level["priority"],
            str(level["first"]),
            str(level["retries"]),
            str(level["tokens"]),
            seconds(level["oldest_age"]),
        )
    return drawn


def _engine(answer: dict[str, Any]) -> Table:
    grid = _grid()
    wait, most = answer["wait"], answer["threshold"]
    grid.add_row(
        "wait", bar(wait, most), Text(f"{seconds(wait)} predicted of {seconds(most)} allowed")
    )
    running, slots = answer["running"], answer["slots"]
    grid.add_row("slots", bar(running, slots), Text(f"{running} of {slots}"))
    kv = answer["kv"]
    grid.add_row("KV", bar(kv, 1.0), Text("-" if kv is None else f"{kv:.0%} promised or used"))
    step, target = answer["step_seconds"], answer["tpot_target"]
    speed = "" if answer["speed"] is None else f", {answer['speed']:.2f} of its usual speed"
    grid.add_row(
        "step", bar(step, target), Text(f"{seconds(step)} of {seconds(target)} per token{speed}")
    )
    return grid


def _notes(answer: dict[str, Any]) -> Table:
    grid = _grid()
    grid.add_row("outcomes", Text(_pairs(answer["outcomes"])))
    if answer["overrides"]:
        grid.add_row("overrides", Text(_pairs(answer["overrides"]), style="yellow"))
    if answer["brownout"]:
        grid.add_row("brown-out", Text(f"rung {answer['brownout']} of 4", style="yellow"))
    return grid


def _pairs(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:g}" for name, value in values.items()) or "-"


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    return grid


def bar(value: float | None, most: float) -> Text:
    """How full, as a bar: green, from three quarters on yellow, from full on red."""
    share = 0.0 if value is None or most <= 0 else value / most
    filled = min(BAR, round(BAR * share))
    style = "red" if share >= 1.0 else "yellow" if share >= 0.75 else "green"
    return Text("█" * filled, style=style) + Text("░" * (BAR - filled), style="dim")
