"""`surgetank shed`: turn the lower classes away for a while. Critical requests never are."""

from typing import Any

import click

from surgetank.control.cli.output import acting_options, admin_command, override
from surgetank.control.client import AdminClient

CLASSES = ("critical", "default", "batch")  # below sheddable there is nothing


@click.command()
@click.option(
    "--below", type=click.Choice(CLASSES), required=True, help="The lowest class still admitted."
)
@acting_options
@admin_command
def shed(client: AdminClient, as_json: bool, below: str, **options: Any) -> None:
    """Refuse every class below CLASS until the TTL is over; what is admitted goes on.

    Refused itself where it would admit more than is admitted now.
    """
    override(client, as_json, "lowest_class", CLASSES.index(below), **options)
