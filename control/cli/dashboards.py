"""`surgetank dashboards`: boards, alert rules and their configuration, written as files."""

from pathlib import Path
from types import ModuleType
from typing import TextIO

import click

from surgetank.control.cli.output import FAILED, emit_json, fail, json_option


@click.group()
def dashboards() -> None:
    """Grafana boards, Prometheus rules and Alertmanager routes, made from the metric catalogue."""


@dashboards.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out/monitoring"),
    show_default=True,
    help="Folder to write to.",
)
@click.option("--check", is_flag=True, help="Write nothing; fail when the folder is not current.")
@json_option
def build(out: Path, check: bool, as_json: bool) -> None:
    """Write boards, rules, scrape configuration and routes into a folder."""
    outcome = _builder(as_json).build(out, check=check)
    if not outcome.current:
        again = f"surgetank dashboards build --out {out}"
        stale = ", ".join(outcome.stale)
        fail(as_json, FAILED, "stale", f"{out} is not current ({stale}); run: {again}")
    if as_json:
        emit_json({"folder": str(out), "written": list(outcome.written)})
        return
    for name in outcome.written:
        click.echo(out / name)
    if not outcome.written:
        click.echo(f"{out}: current")


@dashboards.command()
@click.argument("engine", type=click.Choice(["vllm", "sglang"]))
@click.argument("file", type=click.File(encoding="utf-8"))
@json_option
def backend(engine: str, file: TextIO, as_json: bool) -> None:
    """Which signals of the boards an engine's /metrics page, in FILE or - , does not carry."""
    from surgetank.dashboards.backends import missing

    gaps = missing(engine, file.read())
    if as_json:
        emit_json({"missing": {gap.signal: list(gap.looked_for) for gap in gaps}})
        return
    for gap in gaps:
        click.echo(gap)
    if not gaps:
        click.echo(f"every signal is there under a name known of {engine}")


def _builder(as_json: bool) -> ModuleType:
    """The module that builds, which needs libraries that a sidecar does not."""
    try:
        from surgetank.dashboards import build as builder
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        again = "pip install 'surgetank[dashboards]'"
        fail(as_json, FAILED, "not_installed", f"{library} is not installed; run: {again}")
    return builder
