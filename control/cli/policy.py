"""`surgetank policy`: who decides, who is tried beside it, and what the trials have shown."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

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

_ttl = click.option("--ttl", type=Duration(), required=True, help="How long: 90s, 10m, 2h.")


class Share(click.ParamType[float]):
    """A share of the calls, from 10% or 0.1."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """0.01 to 0.5; a usage error names the allowed forms."""
        text = str(value)
        try:
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            share = 0.0
        if not 0.01 <= share <= 0.5:
            self.fail(f"{value!r} is not a share; allowed: 1% to 50%, or 0.01 to 0.5", param, ctx)
        return share


def _acting(function: Callable[..., None]) -> Callable[..., None]:
    for option in (dry_run_option, who_option, why_option):
        function = option(function)
    return admin_command(function)


@click.group()
def policy() -> None:
    """Show the policies, try one beside the live one, make one live, or take one back."""


@policy.command("list")
@admin_command
def list_policies(client: AdminClient, as_json: bool) -> None:
    """Every policy: what it decides, its state, and who put it there."""
    answer = client.get("/policies")
    if as_json:
        emit_json(answer)
        return
    rows = [
        [each["name"], each["kind"] or "-", each["state"], _held(each), _meaning(each)]
        for each in answer["policies"]
    ]
    table(["policy", "decides", "state", "by", "meaning"], rows)


def _held(policy: dict[str, Any]) -> str:
    if policy["who"] is None:
        return "configuration" if policy["state"] == "live" else "-"
    left = policy["expires_in"]
    return f"{policy['who']}" + ("" if left is None else f", {seconds(left)} left")


def _meaning(policy: dict[str, Any]) -> str:
    return str(policy["problem"] or policy["meaning"])


@policy.command()
@click.argument("name")
@admin_command
def show(client: AdminClient, as_json: bool, name: str) -> None:
    """The policy NAME: what it said in the shadow, or how it does as a canary."""
    answer = client.get(_path(name))
    if as_json:
        emit_json(answer)
        return
    table(["policy", answer["name"]], _rows(answer))
    if answer["canary"] is not None:
        click.echo()
        _compared(answer["canary"])


def _rows(answer: dict[str, Any]) -> list[list[str]]:
    rows = [
        ["state", answer["state"]],
        ["decides", answer["kind"] or "-"],
        ["meaning", _meaning(answer)],
        ["source", answer["source"]],
        ["by", _held(answer)],
    ]
    rows += [["why", answer["why"]]] if answer["why"] else []
    rows += [["faults", str(answer["faults"])]] if answer["faults"] else []
    rows += [["last rollback", answer["last_rollback"]]] if answer["last_rollback"] else []
    rows += [[f"wants {key}", number(each)] for key, each in (answer["values"] or {}).items()]
    if (watch := answer["probation"]) is not None:
        rows.append(
            ["since live", f"{number(watch['good'])} in time, {number(watch['late'])} late"]
        )
    if (shadow := answer["shadow"]) is not None:
        agreed = shadow["agreement"]
        rows += [
            ["agrees", "-" if agreed is None else f"{agreed:.1%}"],
            ["would refuse", _counted(shadow["would_refuse"], shadow["would_refuse_reasons"])],
            ["  which ended", _counted(None, shadow["would_refuse_ended"])],
            ["would admit", _counted(shadow["would_admit"], shadow["would_admit_reasons"])],
            ["both admit", number(shadow["both_admit"])],
            ["  which ended", _counted(None, shadow["both_admit_ended"])],
            ["both refuse", number(shadow["both_refuse"])],
        ]
    return rows


def _counted(total: int | None, parts: dict[str, int]) -> str:
    """A count and what it is made of."""
    said = ", ".join(f"{name} {number(count)}" for name, count in parts.items())
    if total is None:
        return said or "-"
    return f"{number(total)} ({said})" if said else number(total)


def _compared(canary: dict[str, Any]) -> None:
    rows = []
    for window in (canary["last"], canary["current"]):
        for arm in ("live", "candidate") if window else ():
            counts = window[arm]
            rows.append(
                [
                    str(window["number"]),
                    arm,
                    *(number(counts[each]) for each in ("calls", "refused", "good", "late")),
                    *(_percent(counts[each]) for each in ("goodput", "late_share")),
                ]
            )
    table(["window", "arm", "calls", "refused", "good", "late", "goodput", "late share"], rows)
    now = canary["current"]
    click.echo(
        f"evidence that it answers less: {number(now['evidence_goodput'])}, that it is late more "
        f"often: {number(now['evidence_late'])}"
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


@policy.command()
@click.argument("name")
@_ttl
@_acting
def shadow(client: AdminClient, as_json: bool, name: str, **options: Any) -> None:
    """Ask the policy NAME about every request, and obey it never."""
    _act(client, as_json, name, "shadow", options)


@policy.command()
@click.argument("name")
@click.option("--share", type=Share(), default=0.1, show_default=True, help="Of the calls: 10%.")
@_ttl
@_acting
def canary(client: AdminClient, as_json: bool, name: str, **options: Any) -> None:
    """Let the policy NAME decide on a share of the calls.

    It is rolled back at the end of the TTL, and before when it does significantly worse.
    """
    _act(client, as_json, name, "canary", options)


@policy.command()
@click.argument("name")
@click.option("--ttl", type=Duration(), help="Rolled back after this: 2h.  [default: never]")
@click.option("--force", is_flag=True, help="Without a canary that has shown enough.")
@fleet_option
@_acting
def promote(client: AdminClient, as_json: bool, name: str, **options: Any) -> None:
    """Make the policy NAME live until the sidecar ends.

    To keep it, set gate.policy (admission) or control.policies (control) in the configuration.
    """
    _act(client, as_json, name, "promote", options)


@policy.command()
@click.argument("name")
@fleet_option
@_acting
def rollback(client: AdminClient, as_json: bool, name: str, **options: Any) -> None:
    """End what the policy NAME plays; what was configured is live again."""
    _act(client, as_json, name, "rollback", options)


def _path(name: str) -> str:
    return f"/policies/{quote(name, safe='')}"


def _act(client: AdminClient, as_json: bool, name: str, act: str, options: dict[str, Any]) -> None:
    answer = client.post(f"{_path(name)}/{act}", options)
    if as_json:
        emit_json(answer)
        return
    ttl = "" if answer["ttl"] is None else f" for {seconds(answer['ttl'])}"
    click.echo(f"{would(answer)}{answer['what']}: {answer['before']} -> {answer['after']}{ttl}")
