"""`surgetank slo`: what is left of each promise's budget, goodput, and what a token costs."""

from typing import Any

import click

from surgetank.control.cli.output import admin_command, emit_json, number, seconds, table
from surgetank.control.client import AdminClient


@click.command()
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0, max=1e6),
    help="What the service costs per hour; gives the price of 1,000 output tokens.",
)
@admin_command
def slo(client: AdminClient, as_json: bool, price_per_hour: float | None) -> None:
    """Budget left and burn rates of each promise, goodput, cost; counted since the start."""
    query = "" if price_per_hour is None else f"?price_per_hour={price_per_hour}"
    answer = client.get(f"/slo{query}")
    if as_json:
        emit_json(answer)
        return
    columns = ["slo", "target", "objective", "judged", "bad", "budget left", "burn 5m", "burn 1h"]
    table(columns, [_row(each) for each in answer["slos"]])
    goodput, cost = answer["goodput"], answer["cost"]
    click.echo(
        f"goodput: {goodput['as_promised']:.2f} requests/s within both targets, of "
        f"{goodput['served']:.2f} served; {goodput['output_tokens']:.1f} tokens/s "
        f"(last {seconds(goodput['seconds'])})"
    )
    if cost:
        lately, overall = _money(cost["lately"]), _money(cost["since_start"])
        click.echo(f"1,000 output tokens cost {lately} of late, {overall} since the start")
    click.echo(f"counted for {seconds(answer['since'])}; burn 1 spends the budget exactly")


def _row(each: dict[str, Any]) -> list[str]:
    left = each["budget_left"]
    return [
        each["slo"],
        seconds(each["target"]),
        f"{each['objective']:.1%}",
        number(each["judged"]),
        number(each["bad"]),
        "-" if left is None else f"{left:.0%}",
        number(each["burn"]["5m"]),
        number(each["burn"]["1h"]),
    ]


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
