"""`surgetank limits`: what holds traffic back now, and an operator's override of it."""

from typing import Any

import click

from surgetank.control.cli.output import (
    Duration,
    admin_command,
    emit_json,
    number,
    seconds,
    table,
    who_option,
    why_option,
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
    table(["limit", "value", "used", "allowed", "override"], rows)


def _row(limit: dict[str, Any]) -> list[str]:
    override = limit["override"]
    said = "-"
    if override:
        left = seconds(override["expires_in"])
        said = f"{override['who']}: {override['why']} ({left} left, then {number(limit['base'])})"
    bounds = f"{number(limit['minimum'])} to {number(limit['maximum'])}"
    return [limit["name"], number(limit["value"]), number(limit["usage"]), bounds, said]


@limits.command("set")
@click.argument("name")
@click.argument("value", type=float)
@click.option("--ttl", type=Duration(), required=True, help="How long: 90s, 10m, 2h.")
@why_option
@who_option
@click.option("--dry-run", is_flag=True, help="Check and show; change nothing.")
@admin_command
def set_limit(
    client: AdminClient,
    as_json: bool,
    name: str,
    value: float,
    ttl: float,
    why: str,
    who: str,
    dry_run: bool,
) -> None:
    """Override the limit NAME with VALUE until the TTL is over."""
    body = {"value": value, "ttl": ttl, "who": who, "why": why, "dry_run": dry_run}
    answer = client.put(f"/limits/{name}", body)
    if as_json:
        emit_json(answer)
        return
    prefix = "would change " if answer["dry_run"] else ""
    change = f"{number(answer['before'])} -> {number(answer['after'])}"
    click.echo(f"{prefix}{name}: {change} for {seconds(answer['ttl'])}")


@limits.command()
@click.argument("name")
@why_option
@who_option
@admin_command
def clear(client: AdminClient, as_json: bool, name: str, why: str, who: str) -> None:
    """End the override of the limit NAME now."""
    answer = client.delete(f"/limits/{name}", {"who": who, "why": why})
    if as_json:
        emit_json(answer)
        return
    click.echo(f"{name}: {number(answer['before'])} -> {number(answer['after'])}")
