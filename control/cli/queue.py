"""`surgetank queue ls`: who waits at the gate, and who is in the engine."""

from typing import Any

import click

from surgetank.control.cli.output import admin_command, emit_json, number, seconds, table
from surgetank.control.client import AdminClient

WIDEST = 36  # characters of an id


@click.group()
def queue() -> None:
    """The queue at the gate."""


@queue.command("ls")
@click.option("--running", is_flag=True, help="Also those that are in the engine.")
@click.option("--last", type=click.IntRange(1, 1000), default=50, show_default=True)
@admin_command
def ls(client: AdminClient, as_json: bool, running: bool, last: int) -> None:
    """Waiting requests, in order of admission; `explain ID` tells more of one."""
    answer = client.get(f"/queue?last={last}&running={str(running).lower()}")
    if as_json:
        emit_json(answer)
        return
    table(["class", "first", "retries", "tokens", "oldest"], levels(answer["levels"]))
    if not answer["requests"]:
        return
    click.echo()
    columns = ["id", "state", "class", "attempt", "tenant", "prompt", "out", "age", "gives up in"]
    table(columns, [_row(each) for each in answer["requests"]])
    if (hidden := answer["total"] - len(answer["requests"])) > 0:
        click.echo(f"and {hidden} more")


def levels(found: list[dict[str, Any]]) -> list[list[str]]:
    """What waits, by class."""
    return [
        [
            level["priority"],
            number(level["first"]),
            number(level["retries"]),
            number(level["tokens"]),
            seconds(level["oldest_age"]),
        ]
        for level in found
    ]


def _row(each: dict[str, Any]) -> list[str]:
    name = each["id"]
    return [
        name if len(name) <= WIDEST else name[: WIDEST - 1] + "…",
        each["state"],
        each["priority"],
        number(each["attempt"]),
        each["tenant"] or "-",
        number(each["prompt_tokens"]),
        number(each["output_tokens"]),
        seconds(each["age"]),
        seconds(each["left"]),
    ]
