"""`surgetank admission reasons`: how requests end."""

import click

from surgetank.control.cli.output import admin_command, emit_json, number, seconds, table
from surgetank.control.client import AdminClient

CLASSES = ("critical", "default", "batch", "sheddable")


@click.group()
def admission() -> None:
    """What the gate decides."""


@admission.command()
@admin_command
def reasons(client: AdminClient, as_json: bool) -> None:
    """How the last 2,048 requests ended: outcomes by reason and class."""
    answer = client.get("/admission/reasons")
    if as_json:
        emit_json(answer)
        return
    rows = [
        [
            each["outcome"],
            each["reason"],
            number(each["total"]),
            f"{each['total'] / answer['requests']:.0%}",
            *(number(each["by_class"].get(name, 0)) for name in CLASSES),
        ]
        for each in answer["reasons"]
    ]
    table(["outcome", "reason", "requests", "share", *CLASSES], rows)
    click.echo(f"{answer['requests']} requests in {seconds(answer['seconds'])}")
