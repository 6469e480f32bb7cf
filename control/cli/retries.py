"""`surgetank retries top | retry-lane set-rate`: who comes back, and how much of that is let in."""

from typing import Any

import click

from surgetank.control.cli.output import (
    Amount,
    AmountType,
    acting_options,
    admin_command,
    emit_json,
    found,
    number,
    override,
    seconds,
    table,
)
from surgetank.control.client import AdminClient


@click.group()
def retries() -> None:
    """Clients that try again."""


@retries.command()
@click.option("--last", type=click.IntRange(1, 1000), default=20, show_default=True)
@admin_command
def top(client: AdminClient, as_json: bool, last: int) -> None:
    """Who retries most, by fingerprint: a keyed hash of tenant, model, prompt and sampling."""
    answer = client.get(f"/retries?last={last}")
    if as_json:
        emit_json(answer)
        return
    table(["retries", f"last {answer['seconds']:.0f} s"], _facts(answer))
    if answer["top"]:
        click.echo()
        columns = ["fingerprint", "tenant", "class", "retries", "attempt", "told by", "ended"]
        table(columns, [_row(each) for each in answer["top"]])


def _facts(answer: dict[str, Any]) -> list[list[str]]:
    returned = answer["returned"]
    return [
        ["first attempts", number(answer["first"])],
        ["retries", number(answer["retries"])],
        ["arrivals per first attempt", number(answer["amplification"])],
        [
            "came back",
            f"{returned['obeyed']} as told, {returned['ignored']} too early, "
            f"{returned['none']} without advice",
        ],
        ["lane", f"{answer['rate']:g} of the first attempts' work"],
        ["to spend now", f"{seconds(answer['budget'])} of the engine"],
        ["attempts since the start", _counts(answer["by_attempt"])],
        ["told by", _counts(answer["by_header"])],
    ]


def _row(each: dict[str, Any]) -> list[str]:
    return [
        each["fingerprint"],
        each["tenant"] or "-",
        each["priority"],
        number(each["retries"]),
        number(each["highest_attempt"]),
        each["detected_by"],
        _counts(each["outcomes"]),
    ]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "-"


@click.group("retry-lane")
def retry_lane() -> None:
    """The lane that retries pass by."""


@retry_lane.command("set-rate")
@click.argument("rate", type=AmountType())
@acting_options
@admin_command
def set_rate(client: AdminClient, as_json: bool, rate: Amount, **options: Any) -> None:
    """Let retries have RATE of the first attempts' work, 0 to 1, or such a share as 20% of what
    they have without an override; 0 closes the lane.

    Refused while raising it would feed a storm.
    """
    limit = found(client, "retry_share")
    override(client, as_json, "retry_share", 0.0 if limit is None else rate.of(limit), **options)
