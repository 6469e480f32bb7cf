"""What every `surgetank bench` command does with its figures: keep, show, or say why not."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from surgetank.control.cli.output import FAILED, emit_json, fail, table

Say = Callable[[str], None]
Measure = Callable[[Say], dict[str, Any]]

out_option = click.option(
    "--out",
    default=Path("out"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the figures and plots.",
)


def run_bench(as_json: bool, out: Path, measure: Measure) -> None:
    """A bench that loads an engine here: as show_bench, in the engine process's environment."""

    def measured(say: Say) -> dict[str, Any]:
        from surgetank.control.bench.document import BenchError
        from surgetank.engine.config import BuildError
        from surgetank.engine.model.errors import ModelError
        from surgetank.engine.server import SPINS

        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # before torch loads
        try:
            return measure(say)
        except (BuildError, ModelError) as error:
            raise BenchError(str(error)) from error

    show_bench(as_json, out, measured)


def show_bench(as_json: bool, out: Path, measure: Measure) -> None:
    """Measure, keep the document, show it; a failure is one sentence."""
    from surgetank.control.bench.document import BenchError, write

    def say(text: str) -> None:
        click.echo(text, err=True)

    try:
        found = measure(say)
        path = write(found, out)
    except (BenchError, OSError) as error:
        fail(as_json, FAILED, "bench_failed", str(error))
    except ModuleNotFoundError as error:
        needs = f"{error.name} is missing; run: pip install 'surgetank[engine,demo]'"
        fail(as_json, FAILED, "not_installed", needs)
    if as_json:
        emit_json(found)
        return
    for each in found["tables"]:
        click.echo(f"\n{each['title']}")
        table(each["columns"], each["rows"])
    click.echo()
    for note in found["notes"]:
        click.echo(note)
    click.echo(f"figures: {path}")
