"""`surgetank version` and `surgetank docs`: the product about itself."""

import platform
from collections.abc import Callable
from pathlib import Path

import click

from surgetank import __version__
from surgetank.control.cli.output import FAILED, emit_json, fail, json_option


@click.command()
@json_option
def version(as_json: bool) -> None:
    """The installed version."""
    if as_json:
        emit_json({"version": __version__, "python": platform.python_version()})
    else:
        click.echo(f"surgetank {__version__} (Python {platform.python_version()})")


@click.group()
def docs() -> None:
    """Pages that are generated from the code."""


def page_options(function: Callable[..., None]) -> Callable[..., None]:
    """Where a page goes, and whether it is only looked at."""
    for option in (
        json_option,
        click.option("--check", is_flag=True, help="Fail when the file is not current."),
        click.option("--out", type=click.Path(path_type=Path), help="Write to this file."),
    ):
        function = option(function)
    return function


@docs.command()
@page_options
def config(out: Path | None, check: bool, as_json: bool) -> None:
    """The configuration reference, as Markdown."""
    from surgetank.control.config import Config
    from surgetank.control.reference import markdown

    _put("config", markdown(Config), out, check, as_json)


@docs.command()
@page_options
def metrics(out: Path | None, check: bool, as_json: bool) -> None:
    """Every metric of both processes, as Markdown."""
    from surgetank.telemetry.catalog import markdown

    _put("metrics", markdown(), out, check, as_json)


@docs.command()
@page_options
def presets(out: Path | None, check: bool, as_json: bool) -> None:
    """What each preset sets, and why, as Markdown."""
    from surgetank.control.presets import markdown

    _put("presets", markdown(), out, check, as_json)


@docs.command()
@page_options
def policies(out: Path | None, check: bool, as_json: bool) -> None:
    """The policies, how one is tried, and how to bring one's own, as Markdown."""
    from surgetank.control.policies.page import markdown

    _put("policies", markdown(), out, check, as_json)


@docs.command("lab")
@click.option(
    "--figures",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=Path("docs/measured/lab-headline.json"),
    show_default=True,
    help="What `surgetank lab headline --json` printed.",
)
@page_options
def lab_page(figures: Path, out: Path | None, check: bool, as_json: bool) -> None:
    """The lab, and what its headline experiments measured, as Markdown."""
    import json

    from surgetank.control.lab.headline.page import markdown

    try:
        page = markdown(json.loads(figures.read_text("utf-8")))
    except (ValueError, KeyError) as error:
        fail(as_json, FAILED, "unreadable", f"{figures}: {error}")
    _put("lab", page, out, check, as_json)


def _put(name: str, page: str, out: Path | None, check: bool, as_json: bool) -> None:
    """Show a page, write it, or say whether the file is current."""
    if out is None:
        emit_json({"markdown": page}) if as_json else click.echo(page, nl=False)
        return
    current = out.exists() and out.read_text("utf-8") == page
    if check and not current:
        again = f"surgetank docs {name} --out {out}"
        fail(as_json, FAILED, "stale", f"{out} is not current; run: {again}")
    if not current:
        out.write_text(page, "utf-8")
    if as_json:
        emit_json({"file": str(out), "changed": not current})
    else:
        click.echo(f"{out}: {'current' if current else 'written'}")


@docs.command()
@click.option(
    "--figures",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("docs/measured"),
    show_default=True,
    help="Folder of what `surgetank demo storm` wrote: storm.json, and storm-NAME.json for other "
    "makers' engines.",
)
@click.option(
    "--readme",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=Path("README.md"),
    show_default=True,
    help="The page whose block is replaced.",
)
@click.option("--check", is_flag=True, help="Fail when the block is not current.")
@json_option
def storm(figures: Path, readme: Path, check: bool, as_json: bool) -> None:
    """The README's tables of storms, from their measured figures."""
    import json

    from surgetank.control.demo.table import (
        OTHERS,
        OWN,
        as_comparison,
        as_markdown,
        replace_block,
    )

    page = readme.read_text("utf-8")
    try:
        own = json.loads((figures / "storm.json").read_text("utf-8"))
        files = sorted(figures.glob("storm-*.json"))
        others = [json.loads(each.read_text("utf-8")) for each in files]
        fresh = replace_block(page, OWN, as_markdown(own))
        fresh = replace_block(fresh, OTHERS, as_comparison(others))
    except (OSError, ValueError, KeyError) as error:
        fail(as_json, FAILED, "unreadable", f"{figures} into {readme}: {error}")
    if check and fresh != page:
        fail(as_json, FAILED, "stale", f"{readme} is not current; run: surgetank docs storm")
    if fresh != page:
        readme.write_text(fresh, "utf-8")
    if as_json:
        emit_json({"file": str(readme), "changed": fresh != page})
    else:
        click.echo(f"{readme}: {'written' if fresh != page else 'current'}")
