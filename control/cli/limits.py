"""`surgetank limits`: what holds traffic back now, and an operator's override of it."""

from typing import Any
from urllib.parse import quote, urlencode

import click

from surgetank.control.cli.operate import changes
from surgetank.control.cli.output import (
    FAILED,
    Amount,
    AmountType,
    acting_options,
    admin_command,
    dry_run_option,
    emit_json,
    fail,
    found,
    number,
    override,
    seconds,
    table,
    who_option,
    why_option,
    would,
)
from surgetank.control.client import AdminClient


@click.group()
def limits() -> None:
    """Show the limits, override one for a while, or end an override."""


@limits.command()
@admin_command
def show(client: AdminClient, as_json: bool) -> None:
    """Every limit: value in force, usage, bounds, and who overrides it."""
    answer = client.get("/limits")
    if as_json:
        emit_json(answer)
        return
    rows = [_row(limit) for limit in answer["limits"]]
    table(["limit", "value", "used", "allowed", "unit", "override"], rows)


def _row(limit: dict[str, Any]) -> list[str]:
    override = limit["override"]
    said = "-"
    if override:
        left = seconds(override["expires_in"])
        said = f"{override['who']}: {override['why']} ({left} left, then {number(limit['base'])})"
    bounds = f"{number(limit['minimum'])} to {number(limit['maximum'])}"
    shown = [number(limit["value"]), number(limit["usage"]), bounds, limit["unit"], said]
    return [limit["name"], *shown]


@limits.command("set")
@click.argument("name")
@click.argument("value", type=AmountType())
@acting_options
@admin_command
def set_limit(client: AdminClient, as_json: bool, name: str, value: Amount, **options: Any) -> None:
    """Override the limit NAME with VALUE until the TTL is over.

    VALUE is a number, a share of what holds without an override (50%, 200%, kept in the limit's
    range), or max.
    Refused where it would make worse what is going on; --force does it all the same.
    """
    limit = found(client, name)
    # An unknown name is the API's to explain.
    override(client, as_json, name, 0.0 if limit is None else value.of(limit), **options)


@limits.command()
@click.argument("name")
@click.argument("value", type=AmountType(), required=False)
@acting_options
@admin_command
def pin(
    client: AdminClient, as_json: bool, name: str, value: Amount | None, **options: Any
) -> None:
    """Hold the limit NAME where it stands, or at VALUE, whatever its policy wants.

    Refused at the floor with the limit used up: there it would hold the trouble.
    """
    limit = found(client, name)
    wanted = 0.0
    if limit is not None:
        wanted = limit["value"] if value is None else value.of(limit)
    if limit is not None and value is None:
        used = limit["usage"]
        if wanted <= limit["minimum"] and used is not None and used >= wanted:
            fail(
                as_json,
                FAILED,
                "would_worsen",
                f"{name} is at its floor ({number(wanted)}) and used up; pin it at a VALUE above",
            )
    override(client, as_json, name, wanted, **options)


@limits.command()
@click.argument("name")
@why_option
@who_option
@dry_run_option
@admin_command
def clear(client: AdminClient, as_json: bool, name: str, **options: Any) -> None:
    """End the override of the limit NAME now."""
    answer = client.delete(f"/limits/{quote(name, safe='')}", options)
    if as_json:
        emit_json(answer)
        return
    change = f"{number(answer['before'])} -> {number(answer['after'])}"
    click.echo(f"{would(answer)}{name}: {change}")


@limits.command()
@click.argument("name", required=False)
@click.option("--last", type=click.IntRange(1, 1000), default=20, show_default=True)
@admin_command
def history(client: AdminClient, as_json: bool, name: str | None, last: int) -> None:
    """The newest changes of all limits, or of the limit NAME: when, by whom or what, why."""
    query = {"last": last} if name is None else {"last": last, "limit": name}
    answer = client.get(f"/limits/history?{urlencode(query)}")
    if as_json:
        emit_json(answer)
        return
    changes(answer["entries"])
