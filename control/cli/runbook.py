"""`surgetank runbook ALERT`: what to do about an alert, its commands ready to paste, or run."""

import difflib
import re
import shlex
from importlib.resources import files
from typing import Any

import click

from surgetank.control.cli.output import USAGE, emit_json, fail, json_option

# Alerts that are about whichever limit their label names: their runbooks show it by this one.
STANDS_FOR = {"LimitAtFloor": "queue_requests", "LimitFlapping": "queue_requests"}
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.*)$", re.MULTILINE)


@click.command()
@click.argument("alert", required=False)
@click.option("--url", help="Put the admin API's address into each command.")
@click.option("--limit", "name", help="The alert's label `limit`, put into each command.")
@click.option("--run", is_flag=True, help="Run the commands under Diagnosis: they only look.")
@json_option
def runbook(alert: str | None, url: str | None, name: str | None, run: bool, as_json: bool) -> None:
    """Show the runbook of ALERT: meaning, impact, diagnosis, mitigation. Without one, list all."""
    if run and as_json:
        fail(as_json, USAGE, "usage", "--run and --json do not go together")
    books = {each.name.removesuffix(".md"): each for each in _folder().iterdir()}
    if alert is None:
        names = sorted(books)
        emit_json({"runbooks": names}) if as_json else click.echo("\n".join(names))
        return
    if alert not in books:
        near = difflib.get_close_matches(alert, books, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "surgetank runbook lists them"
        fail(as_json, USAGE, "not_found", f"there is no runbook {alert!r}; {hint}")
    text = filled(books[alert].read_text("utf-8"), alert, url, name)
    if as_json:
        emit_json({"alert": alert, "sections": sections(text)})
    else:
        click.echo(text)
    if run:
        _run(sections(text)["Diagnosis"]["commands"])


def _folder() -> Any:
    return files("surgetank.dashboards") / "runbooks"


def filled(text: str, alert: str, url: str | None, limit: str | None) -> str:
    """The text, its commands with the address and the limit that they are for."""

    def fill(block: re.Match[str]) -> str:
        lines = [_line(line, alert, url, limit) for line in block[1].splitlines()]
        return "```sh\n" + "".join(f"{line}\n" for line in lines) + "```"

    return _BLOCK.sub(fill, text)


def _line(line: str, alert: str, url: str | None, limit: str | None) -> str:
    if limit is not None and alert in STANDS_FOR:
        line = re.sub(rf"\b{STANDS_FOR[alert]}\b", limit, line)
    offline = line.startswith(("surgetank capacity", "surgetank dashboards", "surgetank version"))
    return line if url is None or offline else f"{line} --url {shlex.quote(url)}"


def sections(text: str) -> dict[str, dict[str, Any]]:
    """Each section's text and the commands in it."""
    _, *parts = _SECTION.split(text)
    return {
        title: {
            "text": body.strip(),
            "commands": [line for block in _BLOCK.findall(body) for line in block.splitlines()],
        }
        for title, body in zip(parts[::2], parts[1::2])
    }


def _run(commands: list[str]) -> None:
    """One after the other; one that fails does not keep the others from being looked at."""
    from surgetank.control.cli import main

    for command in commands:
        click.secho(f"$ {command}", bold=True)
        try:
            main.main(shlex.split(command)[1:], prog_name="surgetank", standalone_mode=False)
        except SystemExit as ended:
            click.echo(f"(ended with {ended.code})")
        except click.ClickException as error:
            error.show()
