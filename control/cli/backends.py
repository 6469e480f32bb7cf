"""`surgetank backends [show | drain | undrain]`: the engines, and which of them get requests."""

from typing import Any
from urllib.parse import quote

import click

from surgetank.control.cli.output import (
    USAGE,
    Duration,
    admin_command,
    dry_run_option,
    emit_json,
    fail,
    force_option,
    number,
    seconds,
    table,
    who_option,
    why_option,
    would,
)
from surgetank.control.client import AdminClient

STATES = {
    "up": "up",
    "slow_start": "up, slow start",
    "draining": "draining",
    "ejected": "ejected",
    "down": "down",
    "other_model": "up, serves another model",
    "prefill_only": "up, for prefill",
}


@click.group(invoke_without_command=True)
@admin_command
@click.pass_context
def backends(context: click.Context, client: AdminClient, as_json: bool) -> None:
    """The engines: which get requests and why not, how full and how fast they are."""
    if context.invoked_subcommand is not None:
        return
    answer = client.get("/backends")
    if as_json:
        emit_json(answer)
    elif len(answer["backends"]) == 1:
        _show(answer["backends"][0])
    else:
        columns = ["engine", "state", "for", "in it", "wait", "KV", "requests", "moved", "ejected"]
        table([*columns, "what it is"], [_row(each) for each in answer["backends"]])


@backends.command()
@click.argument("name")
@admin_command
def show(client: AdminClient, as_json: bool, name: str) -> None:
    """One engine: what it is and tells, and which laws run on what."""
    known = {each["name"]: each for each in client.get("/backends")["backends"]}
    if name not in known:
        message = f"{name} is no engine here; there are: {', '.join(known)}"
        fail(as_json, USAGE, "not_found", message)
    emit_json(known[name]) if as_json else _show(known[name])


@backends.command()
@click.argument("name")
@why_option
@who_option
@click.option("--ttl", type=Duration(), help="Undrain by itself after this: 10m.  [default: never]")
@dry_run_option
@force_option
@admin_command
def drain(client: AdminClient, as_json: bool, name: str, **options: Any) -> None:
    """Give one engine no more requests; those that it has complete."""
    _report(client.post(f"/backends/{quote(name, safe='')}/drain", options), as_json)


@backends.command()
@click.argument("name")
@why_option
@who_option
@dry_run_option
@admin_command
def undrain(client: AdminClient, as_json: bool, name: str, **options: Any) -> None:
    """Give it requests again."""
    _report(client.post(f"/backends/{quote(name, safe='')}/undrain", options), as_json)


def _report(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(answer)
        return
    change = f"{number(answer['before'])} -> {number(answer['after'])}"
    lasting = "" if answer["ttl"] is None else f" for {seconds(answer['ttl'])}"
    click.echo(f"{would(answer)}{answer['what']}: {change}{lasting}")


def _row(each: dict[str, Any]) -> list[str]:
    routed = each["routed"]
    sent = routed["only"] + routed["wait"] + routed["affinity"]
    affine = f" ({routed['affinity'] / sent:.0%} by affinity)" if sent else ""
    return [
        each["name"],
        _state(each),
        seconds(each["since"]),
        f"{each['running']} of {number(each['slots_now'])}",
        seconds(each["wait"]),
        "-" if each["kv_used"] is None else f"{each['kv_used']:.0%}",
        f"{number(sent)}{affine}",
        number(routed["moved_away"]),
        number(each["ejections"]),
        _what(each),
    ]


def _what(each: dict[str, Any]) -> str:
    parts = [" ".join(filter(None, [each["maker"], each["version"]])), each["url"]]
    if each["url"] and each["up"]:
        told = sum(signal["available"] for signal in each["signals"])
        parts.append(f"tells {told} signals" if told else "tells nothing")
    return ", ".join(filter(None, [*parts, _file_name(each["model"])]))


def _file_name(model: str | None) -> str | None:
    """Engines that serve a file call the model by its path: too wide for a table's row."""
    return model.rpartition("/")[2] if model and model.startswith("/") else model


def _state(each: dict[str, Any]) -> str:
    said = STATES[each["state"]]
    if each["back_in"] is not None:
        return f"{said}, back in {seconds(each['back_in'])}"
    if each["role"] == "decode":
        return f"{said} (decode)"
    return said


def _show(each: dict[str, Any]) -> None:
    title = " ".join(filter(None, [each["name"], each["maker"], each["version"]]))
    table([title, f"{_state(each)} for {seconds(each['since'])}"], _rows(each))
    if each["laws"]:
        click.echo()
        table(["law", "runs on"], [[law["law"], law["runs_on"]] for law in each["laws"]])
    for note in each["notes"]:
        click.echo(f"\nnote: {note}")


def _rows(each: dict[str, Any]) -> list[list[str]]:
    rows = _about_foreign(each) if each["url"] else _about_own(each)
    rows += [
        ["running", f"{each['running']} of {number(each['slots'])} slots{_narrowed(each)}"],
        ["silent with work", seconds(each["stalled_for"])],
        ["newest step", f"{number(each['step'])}, {seconds(each['step_seconds'])}"],
        ["restarts seen", number(each["restarts"])],
        ["speed", "-" if each["speed"] is None else f"{each['speed']:.2f} of what it was"],
    ]
    if model := each["step_model"]:
        said = ", ".join(f"{name} {value:.3g}" for name, value in model.items())
        rows.append(["step model", f"{said} s (error {each['step_model_error']:.0%})"])
    if drift := each["ledger_drift"]:
        said = "of ours, which it does not know of" if drift > 0 else "others'"
        rows.append(["ledger drift", f"{abs(drift)} sequences {said}"])
    if hold := each["drain"]:
        left = "until undrained" if hold["expires_in"] is None else seconds(hold["expires_in"])
        rows.append(["drained by", f"{hold['who']}, {left}: {hold['why']}"])
    return rows


def _narrowed(each: dict[str, Any]) -> str:
    """Where it may have fewer than it runs at once."""
    now = each["slots_now"]
    if now is None or each["slots"] is None or now >= each["slots"]:
        return ""
    return f", of which {number(now)} now"


def _about_own(each: dict[str, Any]) -> list[list[str]]:
    return [
        ["model", f"{each['model']} on {each['device']}" if each["up"] else "-"],
        ["process", number(each["pid"]).replace(",", "")],
    ]


def _about_foreign(each: dict[str, Any]) -> list[list[str]]:
    told = [_signal(signal) for signal in each["signals"] if signal["available"]]
    silent = [signal["signal"] for signal in each["signals"] if not signal["available"]]
    age = "it has none to read" if each["metrics_age"] is None else seconds(each["metrics_age"])
    routed = each["routed"]
    return [
        ["address", each["url"]],
        ["models", ", ".join(each["models"]) or "-"],
        ["role", each["role"]],
        ["its metrics tell", ", ".join(told) or "nothing"],
        ["they do not tell", ", ".join(silent) or "-"],
        ["age of its metrics", age],
        ["turned away by it", number(each["pushbacks"])],
        [
            "requests",
            f"{routed['wait']} for the least wait, {routed['affinity']} by affinity, "
            f"{routed['only']} as the only one with room; {routed['moved_away']} moved on",
        ],
        ["faults", f"{each['faults']} in a row; {number(each['ejections'])} ejections so far"],
    ]


def _signal(signal: dict[str, Any]) -> str:
    value = signal["value"]
    shown = f"{value:.0%}" if signal["signal"] == "kv_used" else number(value)
    return f"{signal['signal']} {shown}"
