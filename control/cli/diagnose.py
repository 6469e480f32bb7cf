"""`surgetank diagnose`: what stands in the way, in one word, with evidence and the next command."""

from urllib.parse import urlencode

import click

from surgetank.control.cli.output import VERDICT_STYLE, admin_command, emit_json
from surgetank.control.client import AdminClient

SLOS = ("ttft", "tpot", "availability")


@click.command()
@click.option("--slo", type=click.Choice(SLOS), help="Only what endangers this promise.")
@admin_command
def diagnose(client: AdminClient, as_json: bool, slo: str | None) -> None:
    """Say what is wrong: healthy, compute, memory, scheduling, limit, clients or backend.

    The verdict rests on the last ten to thirty seconds.
    """
    answer = client.get("/diagnose" + (f"?{urlencode({'slo': slo})}" if slo else ""))
    if as_json:
        emit_json(answer)
        return
    verdict = answer["verdict"]
    click.secho(verdict, bold=True, fg=VERDICT_STYLE.get(verdict, "magenta"))
    for line in answer["evidence"]:
        click.echo(f"  {line}")
    click.echo(f"next: {answer['next']}")
