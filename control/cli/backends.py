"""`surgetank backends` and `surgetank admission reasons`: the engines, and how requests end."""

from typing import Any

import click

from surgetank.control.cli.output import admin_command, emit_json, number, seconds, table
from surgetank.control.client import AdminClient

CLASSES = ("critical", "default", "batch", "sheddable")


@click.command()
@admin_command
def backends(client: AdminClient, as_json: bool) -> None:
    """The engines: up or not, stepping or not, as fast as usual or not."""
    answer = client.get("/backends")
    if as_json:
        emit_json(answer)
        return
    for each in answer["backends"]:
        title = " ".join(filter(None, [each["backend"], each["version"]]))
        table([title, "up" if each["up"] else "down"], _rows(each))
        if each["laws"]:
            click.echo()
            rows = [[law["law"], law["runs_on"]] for law in each["laws"]]
            table(["law", "runs on"], rows)
        for note in each["notes"]:
            click.echo(f"\nnote: {note}")


def _rows(each: dict[str, Any]) -> list[list[str]]:
    rows = _about_foreign(each) if each["url"] else _about_own(each)
    rows += [
        ["running", f"{each['running']} of {number(each['slots'])} slots"],
        ["silent with work", seconds(each["stalled_for"])],
        ["newest step", f"{number(each['step'])}, {seconds(each['step_seconds'])}"],
        ["speed", "-" if each["speed"] is None else f"{each['speed']:.2f} of what it was"],
    ]
    if model := each["step_model"]:
        said = ", ".join(f"{name} {value:.3g}" for name, value in model.items())
        rows.append(["step model", f"{said} s (error {each['step_model_error']:.0%})"])
    if each["ledger_drift"]:
        rows.append(["ledger drift", f"{each['ledger_drift']} sequences"])
    return rows


def _about_own(each: dict[str, Any]) -> list[list[str]]:
    return [
        ["model", f"{each['model']} on {each['device']}" if each["up"] else "-"],
        ["process", number(each["pid"]).replace(",", "")],
    ]


def _about_foreign(each: dict[str, Any]) -> list[list[str]]:
    told = [_signal(signal) for signal in each["signals"] if signal["available"]]
    silent = [signal["signal"] for signal in each["signals"] if not signal["available"]]
    age = "it has none to read" if each["metrics_age"] is None else seconds(each["metrics_age"])
    return [
        ["address", each["url"]],
        ["models", ", ".join(each["models"]) or "-"],
        ["it tells", ", ".join(told) or "nothing"],
        ["it does not tell", ", ".join(silent) or "-"],
        ["age of its metrics", age],
        ["turned away by it", number(each["pushbacks"])],
    ]


def _signal(signal: dict[str, Any]) -> str:
    value = signal["value"]
    shown = f"{value:.0%}" if signal["signal"] == "kv_used" else number(value)
    return f"{signal['signal']} {shown}"


@click.group()
def admission() -> None:
    """What the gate decides."""


@admission.command()
@admin_command
def reasons(client: AdminClient, as_json: bool) -> None:
    """How the last 2,048 requests ended: outcomes by reason and class."""
    answer = client.get("/admission/reasons")
    if as_json:
        emit_json(answer)
        return
    rows = [
        [
            each["outcome"],
            each["reason"],
            number(each["total"]),
            f"{each['total'] / answer['requests']:.0%}",
            *(number(each["by_class"].get(name, 0)) for name in CLASSES),
        ]
        for each in answer["reasons"]
    ]
    table(["outcome", "reason", "requests", "share", *CLASSES], rows)
    click.echo(f"{answer['requests']} requests in {seconds(answer['seconds'])}")
