"""`surgetank demo`: the incidents the product exists for, replayed and measured on this machine."""

import asyncio
from pathlib import Path

import click

from surgetank.control.cli.output import FAILED, USAGE, emit_json, fail, json_option, table


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
@click.option("--backend", metavar="URL", help="An engine that runs already, not our own.")
@click.option(
    "--engine-pid",
    type=click.IntRange(2),
    help="Its process, which is stopped (SIGSTOP).  [default: the wire to it is frozen]",
)
@json_option
def storm(
    seed: int,
    load: float,
    out: Path,
    settings: tuple[str, ...],
    backend: str | None,
    engine_pid: int | None,
    as_json: bool,
) -> None:
    """A retry storm, twice: with the gate wide open, and with it as it ships.

    Steady traffic from the real `openai` client with its default retries; then the engine process
    is stopped for 10 s (SIGSTOP) and goes on. Takes about three minutes.

    With --backend, the same storm before another maker's engine: straight to it, and through the
    gate.
    """
    if engine_pid is not None and backend is None:
        fail(
            as_json,
            USAGE,
            "usage",
            "--engine-pid is of the engine at --backend, which is not given",
        )
    try:
        from surgetank.control.demo import plot
        from surgetank.control.demo.service import ServiceError
        from surgetank.control.demo.storm import (
            Foreign,
            Plan,
            as_document,
            run_storm,
            write_json,
        )
    except ModuleNotFoundError as error:
        needs = f"the demo needs {error.name}; run: pip install 'surgetank[engine,demo]'"
        fail(as_json, FAILED, "not_installed", needs)
    from surgetank.control.demo.table import as_rows
    from surgetank.telemetry.clock import SystemClock

    plan, clock = Plan(seed=seed, load=load), SystemClock()
    foreign = None if backend is None else Foreign(backend, engine_pid)

    def say(text: str) -> None:
        click.echo(text, err=True)

    try:
        result = asyncio.run(run_storm(plan, list(settings), clock, say, foreign))
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
