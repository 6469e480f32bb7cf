"""`surgetank steps | kv | stacks`: inside the engine, also when it is stuck or dead."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surgetank.control.cli.output import (
    FAILED,
    UNREACHABLE,
    USAGE,
    admin_command,
    emit_json,
    fail,
    number,
    seconds,
    table,
)
from surgetank.control.client import AdminClient, Unreachable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from surgetank.control.inspection import Inspection

file_option = click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A step ring.  [default: the admin API's; without it, the one beside the socket]",
)


@click.command()
@click.option("--slow", is_flag=True, help="Only steps above three times the median.")
@click.option("--last", type=click.IntRange(1, 1_000_000), default=20, show_default=True)
@file_option
@admin_command
def steps(client: AdminClient, as_json: bool, slow: bool, last: int, file: Path | None) -> None:
    """The engine's newest steps: what they did, how long it took, and what held slots empty.

    Also of an engine that died: its steps stay in a file beside its socket, and those of the
    engine before it in FILE.previous.
    """
    answer = _look(
        f"/steps?last={last}&slow={str(slow).lower()}",
        lambda inside: inside.steps(last, slow, file),
        client,
        as_json,
        file,
    )
    if as_json:
        emit_json(answer)
        return
    click.echo(_about(answer["engine"]))
    usual = answer["median_seconds"]
    if not answer["steps"]:
        what = f"no step above three times the median of {seconds(usual)}" if usual else "no step"
        click.echo(f"{what} among those kept")
    else:
        columns = ["step", "at", "took", "x median", "kind", "most of it", "prefill", "decode"]
        columns += ["waiting", "free kv", "put back", "slots"]
        table(columns, [_step_row(step, usual) for step in answer["steps"]])
    if answer["engine"]["previous"]:
        click.echo(f"the engine before: surgetank steps --file {answer['engine']['previous']}")


def _step_row(step: dict[str, Any], usual: float | None) -> list[str]:
    most = step["dominated_by"]
    return [
        str(step["step"]),
        time.strftime("%H:%M:%S", time.localtime(step["at"])) + f".{step['at'] % 1 * 1000:03.0f}",
        seconds(step["seconds"]),
        number(step["seconds"] / usual) if usual else "-",
        step["kind"],
        f"{most['what']} {most['ratio']:.0%}",
        number(step["prefill_tokens"]),
        number(step["decode_tokens"]),
        number(sum(step["waiting"].values())),
        number(step["kv_blocks"]["free"] + step["kv_blocks"]["cached"]),
        number(sum(step["preemptions"].values())),
        step["binding"],
    ]


@click.command()
@file_option
@admin_command
def kv(client: AdminClient, as_json: bool, file: Path | None) -> None:
    """The KV pool: blocks, fragmentation, prefix hits, and which class holds how much."""
    answer = _look("/kv", lambda inside: inside.kv(file), client, as_json, file)
    if as_json:
        emit_json(answer)
        return
    click.echo(_about(answer["engine"]))
    blocks, prefix = answer["blocks"], answer["prefix_tokens"]
    whole = sum(blocks.values())
    rows = [
        [f"blocks {state}", f"{number(count)} ({_percent(count / whole)})"]
        for state, count in blocks.items()
    ]
    rows += [
        ["tokens stored", number(answer["stored_tokens"])],
        ["fragmentation", _percent(answer["fragmentation"])],
        [
            "prefix hits",
            f"{_percent(answer['hit_ratio'])} of {number(sum(prefix.values()))} tokens",
        ],
        ["failed allocations", number(answer["allocation_failures"])],
    ]
    rows += [[f"put back ({name})", number(count)] for name, count in answer["preemptions"].items()]
    rows += [
        [f"swapped {way}, bytes", number(n)] for way, n in answer["swapped_bytes"].items() if n
    ]
    table(["kv pool", f"blocks of {answer['block_size']} tokens"], rows)
    click.echo()
    holders = [
        [each["priority"], *(number(each[column]) for column in ("blocks", "running", "waiting"))]
        for each in answer["holders"]
    ]
    table(["held by class", "blocks", "running", "waiting"], holders)
    click.echo(
        f"\nprefix hits, failures and preemptions: over the last {answer['over_steps']} steps"
    )


@click.command()
@admin_command
def stacks(client: AdminClient, as_json: bool) -> None:
    """The Python stacks of engine and sidecar, also of one that is stuck in a step."""
    answer = _look("/stacks", lambda inside: inside.stacks(), client, as_json)
    processes = answer["processes"]
    if not any(each["text"] for each in processes):
        unreachable = "; ".join(each["error"] for each in processes)
        fail(as_json, UNREACHABLE, "unreachable", unreachable)
    if as_json:
        emit_json(answer)
        return
    for each in processes:
        if each["error"]:
            click.echo(f"== {each['process']}: {each['error']}")
        else:
            click.echo(f"== {each['process']}, process {each['pid']}\n{each['text']}")


def _look(
    path: str,
    beside: "Callable[[Inspection], BaseModel]",
    client: AdminClient,
    as_json: bool,
    file: Path | None = None,
) -> Any:
    """From the admin API; without one, or with a file, from what the processes leave on disk."""
    from surgetank.engine.ring import RingError

    code, what = FAILED, "failed"
    unreachable = ""
    if file is None:
        try:
            return client.get(path)
        except Unreachable as error:
            code, what, unreachable = UNREACHABLE, "unreachable", f"{error}; "
    try:
        return beside(_inspection(as_json)).model_dump()
    except RingError as error:
        fail(as_json, code, what, f"{unreachable}{error}")


def _inspection(as_json: bool) -> "Inspection":
    """At the configured socket: the environment's, else the default."""
    from surgetank.control.config import Config
    from surgetank.control.inspection import Inspection
    from surgetank.control.sources import ConfigError, load

    try:
        config = load(Config, env=os.environ)
    except ConfigError as error:
        fail(as_json, USAGE, "configuration", str(error))
    return Inspection(config.engine.socket, [backend.url for backend in config.backends])


def _about(engine: dict[str, Any]) -> str:
    state = "running" if engine["alive"] else "has ended"
    torn = f"; {engine['unreadable']} half-written records left out" if engine["unreadable"] else ""
    return f"engine {engine['pid']} ({engine['model']}), {state}; step {engine['newest']}{torn}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}"
