"""`surgetank status | drain | undrain | journal`: the state of a running service."""

import time
from typing import Any

import click

from surgetank.control.cli.output import (
    Duration,
    admin_command,
    dry_run_option,
    emit_json,
    fleet_option,
    number,
    seconds,
    table,
    who_option,
    why_option,
    would,
)
from surgetank.control.client import AdminClient


@click.command()
@admin_command
def status(client: AdminClient, as_json: bool) -> None:
    """State, engine, load, outcomes so far, and limits that are overridden."""
    answer = client.get("/status")
    if as_json:
        emit_json(answer)
        return
    table(["surgetank", answer["version"]], _rows(answer))


def _rows(answer: dict[str, Any]) -> list[list[str]]:
    requests, engine = answer["requests"], answer["engine"]
    rows = [
        ["state", answer["state"].replace("_", " ")],
        ["up for", seconds(answer["uptime_seconds"])],
    ]
    if engine:
        where = (
            f"{engine['dtype']} on {engine['device']}" if engine["device"] else engine["version"]
        )
        rows.append(["model", f"{engine['model']} ({where})"])
    if len(answer["backends"]) > 1:
        rows += [
            [f"  {each['name']}", f"{each['state'].replace('_', ' ')}, {each['running']} running"]
            for each in answer["backends"]
        ]
    rows += [
        ["in flight", f"{requests['in_flight']} ({requests['queued']} queued)"],
        ["received", number(requests["received"])],
    ]
    rows += [[f"  {name}", number(count)] for name, count in requests["outcomes"].items() if count]
    rows += _shared(answer["fleet"])
    for limit in answer["limits"]:
        if limit["override"]:
            left = seconds(limit["override"]["expires_in"])
            rows.append([f"override {limit['name']}", f"{number(limit['value'])}, {left} left"])
    rows += [[name, url] for name, url in answer["listeners"].items()]
    return rows


def _shared(fleet: dict[str, Any] | None) -> list[list[str]]:
    """One row where there are others to share with."""
    if fleet is None or fleet["mode"] == "single":
        return []
    leader = "leads" if fleet["leads"] else f"led by {fleet['leader'] or 'nobody known'}"
    return [["shared state", f"{fleet['mode']}, {fleet['sidecars']} sidecars, {leader}"]]


@click.command()
@why_option
@who_option
@click.option("--ttl", type=Duration(), help="Undrain by itself after this: 10m.  [default: never]")
@dry_run_option
@fleet_option
@admin_command
def drain(client: AdminClient, as_json: bool, **options: Any) -> None:
    """Refuse new requests; those in flight complete."""
    _report(client.post("/drain", options), as_json)


@click.command()
@why_option
@who_option
@dry_run_option
@fleet_option
@admin_command
def undrain(client: AdminClient, as_json: bool, **options: Any) -> None:
    """Take new requests again."""
    _report(client.post("/undrain", options), as_json)


def _report(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(answer)
        return
    change = f"{number(answer['before'])} -> {number(answer['after'])}"
    where = " at every sidecar" if answer["fleet"] else ""
    click.echo(f"{would(answer)}draining{where}: {change}")


@click.command()
@click.option("--last", type=click.IntRange(1, 1000), default=20, show_default=True)
@admin_command
def journal(client: AdminClient, as_json: bool, last: int) -> None:
    """The newest changes: who, why, before, after."""
    answer = client.get(f"/journal?last={last}")
    if as_json:
        emit_json(answer)
        return
    changes(answer["entries"])


def changes(entries: list[dict[str, Any]]) -> None:
    """Journal entries as a table."""
    rows = [
        [
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at"])),
            entry["what"],
            f"{number(entry['before'])} -> {number(entry['after'])}",
            seconds(entry["ttl"]),
            entry["who"],
            entry["cause"],
            entry["why"],
        ]
        for entry in entries
    ]
    table(["at", "what", "change", "ttl", "who", "cause", "why"], rows)
