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
        table([each["backend"], "up" if each["up"] else "down"], _rows(each))


def _rows(each: dict[str, Any]) -> list[list[str]]:
    rows = [
        ["model", f"{each['model']} on {each['device']}" if each["up"] else "-"],
        ["process", number(each["pid"]).replace(",", "")],
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
