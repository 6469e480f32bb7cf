"""`surgetank top`: the service as it moves, on one screen."""

import json
import time
from typing import TYPE_CHECKING

import click

from surgetank.control.cli.output import admin_command, emit_json
from surgetank.control.client import AdminClient, Unreachable

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.option("--once", is_flag=True, help="Print one screen and end.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 60.0),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--count", type=click.IntRange(1), help="End after so many looks.")
@admin_command
def top(client: AdminClient, as_json: bool, once: bool, interval: float, count: int | None) -> None:
    """Load, queue, engine and verdict, live; Ctrl-C ends.

    With --json one line per look, or one document with --once. Where stdout is no terminal, one
    screen.
    """
    from rich.console import Console

    from surgetank.control.screen import screen

    console = Console()
    if once or not (as_json or console.is_terminal):
        answer = client.get("/top")
        emit_json(answer) if as_json else console.print(screen(answer))
        return
    try:
        if as_json:
            _lines(client, interval, count)
        else:
            _live(client, console, interval, count)
    except KeyboardInterrupt:
        return


def _lines(client: AdminClient, interval: float, count: int | None) -> None:
    while True:
        click.echo(json.dumps(client.get("/top")))
        if count is not None and (count := count - 1) <= 0:
            return
        time.sleep(interval)


def _live(client: AdminClient, console: "Console", interval: float, count: int | None) -> None:
    """A service that goes away is shown as such, and waited for."""
    from rich.live import Live
    from rich.text import Text

    from surgetank.control.screen import screen

    with Live(screen(client.get("/top")), console=console, screen=True, auto_refresh=False) as live:
        while count is None or (count := count - 1) > 0:
            time.sleep(interval)
            try:
                live.update(screen(client.get("/top")), refresh=True)
            except Unreachable as error:
                live.update(Text(f"{error}; still trying", style="bold red"), refresh=True)
