"""`surgetank demo`: the incidents the product exists for, replayed and measured on this machine."""

import asyncio
from pathlib import Path

import click

from surgetank.control.cli.output import FAILED, emit_json, fail, json_option, table


@click.group()
def demo() -> None:
    """Measured demonstrations against the real engine."""


@demo.command()
@click.option("--seed", default=1, show_default=True, help="Of the arrivals and the prompts.")
@click.option(
    "--load",
    default=0.9,
    show_default=True,
    type=click.FloatRange(0.1, 2.0),
    help="Calls offered, as a share of the capacity that is measured first.",
)
@click.option(
    "--out",
    default=Path("out"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for storm.png and storm.json.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Any setting, both runs."
)
@json_option
def storm(seed: int, load: float, out: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """A retry storm, twice: with the gate wide open, and with it as it ships.

    Steady traffic from the real `openai` client with its default retries; then the engine process
    is stopped for 10 s (SIGSTOP) and goes on. Takes about three minutes.
    """
    try:
        from surgetank.control.demo import plot
        from surgetank.control.demo.service import ServiceError
        from surgetank.control.demo.storm import Plan, as_document, run_storm, write_json
    except ModuleNotFoundError as error:
        needs = f"the demo needs {error.name}; run: pip install 'surgetank[engine,demo]'"
        fail(as_json, FAILED, "not_installed", needs)
    from surgetank.control.demo.table import as_rows
    from surgetank.telemetry.clock import SystemClock

    plan, clock = Plan(seed=seed, load=load), SystemClock()
    try:
        result = asyncio.run(
            run_storm(plan, list(settings), clock, lambda text: click.echo(text, err=True))
        )
        document = as_document(result, plan, clock)
        write_json(document, out / "storm.json")
        plot.draw(result.episodes, result.offered, out / "storm.png")
    except (ServiceError, OSError) as error:
        fail(as_json, FAILED, "demo_failed", str(error))
    if as_json:
        emit_json(document)
    else:
        table(*as_rows(document))
        click.echo(f"\nplot: {out / 'storm.png'}   figures: {out / 'storm.json'}")
