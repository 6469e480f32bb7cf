"""`surgetank fleet`: what this sidecar shares with others, and who decides for all."""

from typing import Any

import click

from surgetank.control.cli.output import admin_command, emit_json, number, table
from surgetank.control.client import AdminClient

_MODES = {
    "single": "the only sidecar, by configuration",
    "shared": "leases, renewed in time",
    "holding": "Redis is lost: the last shares go on",
    "alone": "Redis is lost: an equal part of each limit",
}
_UNITS = {
    "requests_per_minute": (60.0, "requests/min"),
    "tokens_per_minute": (60.0, "tokens/min"),
    "concurrency": (1.0, "slots"),
    "retry_budget": (1.0, "engine-s/s"),
}


@click.command()
@admin_command
def fleet(client: AdminClient, as_json: bool) -> None:
    """Where the shares of quotas come from, who leads, and what is held of each limit."""
    answer = client.get("/fleet")
    if as_json:
        emit_json(answer)
        return
    table(["fleet", ""], _facts(answer))
    if answer["shares"]:
        rows = [_row(share) for share in answer["shares"]]
        table(["tenant", "limit", "held here", "unit", "may be taken at once"], rows)


def _facts(answer: dict[str, Any]) -> list[list[str]]:
    mode = answer["mode"]
    rows = [["mode", f"{mode}: {_MODES[mode]}"], ["sidecars", number(answer["sidecars"])]]
    if answer["name"]:
        leader = "this one" if answer["leads"] else answer["leader"] or "-"
        rows += [["this one", answer["name"]], ["leader", leader]]
        rows += [["unanswered", number(answer["failures"])]]
    if answer["untold"]:
        rows.append(["not told yet", f"{answer['untold']} acts wait for Redis"])
    if answer["policy"]:
        rows.append(["policy", answer["policy"]])
    return rows


def _row(share: dict[str, Any]) -> list[str]:
    factor, unit = _UNITS[share["limit"]]
    held, left = number(factor * share["share"]), number(share["left"])
    return [share["tenant"] or "-", share["limit"], held, unit, left]
