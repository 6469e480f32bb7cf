"""`surgetank explain REQUEST_ID`: one request's stages, the decision, and what if it came now."""

from typing import Any
from urllib.parse import quote

import click

from surgetank.control.cli.output import admin_command, emit_json, seconds, table
from surgetank.control.client import AdminClient

_HOW = {
    "exact": "",
    "told": ", by the engine's usage",
    "events": ", counted by its events",
    "estimated": ", estimated",
}
# What the request itself brings about, at any load: how long it would wait now is no answer.
_OWN = frozenset({"invalid", "not_found", "unauthenticated", "denied", "infeasible"})


@click.command()
@click.argument("request_id")
@admin_command
def explain(client: AdminClient, as_json: bool, request_id: str) -> None:
    """Explain one request, by the id that its answer carried in x-request-id.

    Works for requests in flight and for the last 2,048 that ended.
    """
    answer = client.get(f"/explain/{quote(request_id, safe='')}")
    if as_json:
        emit_json(answer)
        return
    click.secho(answer["sentence"], bold=True)
    table(["request", answer["id"]], _facts(answer))
    click.echo()
    rows = [
        [each["stage"], seconds(each["seconds"]) + (" so far" if each["running"] else "")]
        for each in answer["stages"]
    ]
    table(["stage", "took"], [*rows, ["total", seconds(answer["total"])]])
    if answer["found"]:
        click.echo()
        table(["at its arrival", ""], _found(answer["found"]))
    if answer["what_if"] and answer["decision"]["outcome"] not in _OWN:
        click.echo()
        rows = [_what_if(each) for each in answer["what_if"]]
        table(["if it came now, as", "would wait", "may wait", "so it would be"], rows)


def _facts(answer: dict[str, Any]) -> list[list[str]]:
    decision = answer["decision"]
    attempt = f"{answer['attempt']} (by {answer['detected_by']})" if answer["attempt"] else "0"
    rows = [
        ["state", answer["state"]],
        ["class, lane", f"{answer['priority']}, {answer['lane']}"],
        ["attempt", attempt],
        ["trace", answer["trace_id"] or "-"],
        ["tenant, door", f"{answer['tenant'] or '-'}, {answer['door']}"],
        ["engine", answer["backend"] or "-"],
        *_moves(answer),
        ["prompt", f"{answer['prompt_tokens']} tokens{_prompt(answer)}"],
        [
            "output",
            f"{answer['output_tokens']} of at most {answer['max_tokens']} tokens"
            + _HOW[answer["output_known"]],
        ],
        [
            "expected",
            f"{answer['estimated_output']:.0f} tokens of output, "
            f"{answer['estimated_seconds']:.3g} engine-seconds",
        ],
    ]
    if decision["outcome"]:
        rows.append(["outcome", f"{decision['outcome']} ({decision['reason']})"])
    if decision["limit_name"]:
        met = f"measured {decision['measured']:.4g}, allowed {decision['limit']:.4g}"
        rows.append([f"limit {decision['limit_name']}", met])
    if decision["outcome"] not in (None, "ok"):
        after = decision["retry_after"]
        rows.append(["advice", "do not retry" if after is None else f"retry in {after:.2f} s"])
    if answer["same_id"] > 1:
        rows.append(["same id", f"{answer['same_id']} requests; this is the newest"])
    return rows


def _prompt(answer: dict[str, Any]) -> str:
    """How its length is known, what was expected where that was another, what of it was cached."""
    expected, cached = answer["estimated_prompt"], answer["cached_tokens"]
    other = "" if answer["prompt_tokens"] == expected else f", estimated {expected} before"
    return _HOW[answer["prompt_known"]] + other + ("" if cached is None else f", {cached} cached")


def _moves(answer: dict[str, Any]) -> list[list[str]]:
    """The engines that it had before, and why it has left them."""
    moved = [(at, what) for at, what in answer["events"] if what.startswith("moved from ")]
    return [[f"  after {seconds(at)}", what] for at, what in moved]


def _found(found: dict[str, Any]) -> list[list[str]]:
    rows = [
        [
            "waiting",
            f"{found['queued']} requests ({found['queued_tokens']} tokens), "
            f"{found['ahead']} of its class and above",
        ],
        ["in the engine", f"{found['running']} sequences"],
        ["KV promised", f"{found['kv_promised']:.0%}"],
        ["it might wait", seconds(found["threshold"])],
    ]
    if predicted := found["predicted"]:
        rows.append(["predicted wait", f"{seconds(predicted['total'])} ({predicted['binding']})"])
    return rows


def _what_if(each: dict[str, Any]) -> list[str]:
    fate = {True: "admitted", False: "refused", None: "not known"}[each["admitted"]]
    wait = each["wait"]["total"] if each["wait"] else None
    return [each["priority"], seconds(wait), seconds(each["threshold"]), fate]
