"""`surgetank memory`: the KV pool, who holds it, and what it keeps out."""

from typing import Any

import click

from surgetank.control.cli.output import admin_command, emit_json, number, table
from surgetank.control.client import AdminClient


@click.command()
@admin_command
def memory(client: AdminClient, as_json: bool) -> None:
    """The KV pool as gate and engine see it: used, promised, allowed, lost to preemption."""
    answer = client.get("/memory")
    if as_json:
        emit_json(answer)
        return
    table(["KV pool", ""], _rows(answer))
    if answer["note"]:
        click.echo(f"\n{answer['note']}")


def _rows(answer: dict[str, Any]) -> list[list[str]]:
    blocks = answer["blocks"]

    share = "-" if answer["share"] is None else f"{answer['share']:.0%}"

    def of_pool(count: int | None) -> str:
        share = f" ({count / blocks:.0%})" if blocks and count is not None else ""
        return number(count) + share

    size = "-"
    if blocks:
        size = f"{number(blocks)} blocks of {answer['block_tokens']} tokens"
    if answer["bytes"] is not None:
        size += f", {answer['bytes'] / 2**20:,.0f} MiB"
    rows = [
        ["size", size],
        ["used", of_pool(answer["used"]) if blocks else share],
        *([f"  {name}", of_pool(count)] for name, count in answer["held"].items() if count),
        ["cached", of_pool(answer["cached"])],
        ["free", of_pool(answer["free"])],
        ["usable", of_pool(answer["usable"])],
        ["promised", of_pool(answer["promised"])],
        ["may be promised", f"{answer['reserve']:.0%}, to low classes {answer['reserve_low']:.0%}"],
        ["low classes", "refused until it falls" if answer["closed"] else "admitted"],
        ["preempted", _preempted(answer)],
    ]
    if answer["fragmentation"] is not None:
        rows.append(["fragmentation", f"{answer['fragmentation']:.0%}"])
    return rows


def _preempted(answer: dict[str, Any]) -> str:
    if answer["preempted_tokens"] is None:
        count = answer["preemptions"]
        return "-" if count is None else f"{number(count)} times since it began"
    lost = f"{number(answer['preempted_tokens'])} tokens in the last half minute"
    return f"{lost} ({answer['waste']:.0%} of the computed)"
