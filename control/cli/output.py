"""How every command speaks: tables or JSON on stdout, one sentence on stderr, one exit code."""

import functools
import getpass
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from urllib.parse import quote

import click

from surgetank.control.client import AdminClient, ApiError, Unreachable

FAILED, USAGE, UNREACHABLE = 1, 2, 3
MAX_WIDTH = 10_000  # characters of a line that goes into a file or a pipe
VERDICT_STYLE = {"healthy": "green", "clients": "yellow", "limit": "yellow", "backend": "red"}
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

json_option = click.option("--json", "as_json", is_flag=True, help="Only JSON on stdout.")
url_option = click.option("--url", help="The admin API's address.  [default: $SURGETANK_URL]")
who_option = click.option(
    "--who", default=lambda: current_user(), help="Who changes it.  [default: the login name]"
)
why_option = click.option("--why", required=True, help="Why; it stands in the journal.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Check and show; change nothing.")
force_option = click.option(
    "--force", is_flag=True, help="Do it although it would make things worse now."
)


class Duration(click.ParamType[float]):
    """Seconds from 90, 90s, 10m, 2h or 1d."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds; a usage error names the allowed forms."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is not a duration; allowed: 90, 90s, 10m, 2h, 1d", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


def current_user() -> str:
    """The login name, or the numeric id where there is no such name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's bare user id
        return f"unknown ({error})"


def fail(as_json: bool, exit_code: int, code: str, message: str) -> NoReturn:
    """End the command with one sentence."""
    if as_json:
        emit_json({"error": {"code": code, "message": message}})
    else:
        click.echo(f"surgetank: {message}", err=True)
    sys.exit(exit_code)


def emit_json(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2))


def admin_command(function: Callable[..., None]) -> Callable[..., None]:
    """A command over the admin API: gives it `client` and `as_json`, maps failures to codes."""

    @json_option
    @url_option
    @functools.wraps(function)
    def wrapper(*args: Any, as_json: bool, url: str | None, **kwargs: Any) -> None:
        try:
            function(*args, client=AdminClient(url), as_json=as_json, **kwargs)
        except Unreachable as error:
            fail(as_json, UNREACHABLE, "unreachable", str(error))
        except ApiError as error:
            exit_code = USAGE if error.status in (400, 404, 422) else FAILED
            fail(as_json, exit_code, error.code, str(error))

    return wrapper


def acting_options(function: Callable[..., None]) -> Callable[..., None]:
    """What every override takes: for how long, why, who, and whether to do it at all."""
    ttl = click.option("--ttl", type=Duration(), required=True, help="How long: 90s, 10m, 2h.")
    for option in (force_option, dry_run_option, who_option, why_option, ttl):
        function = option(function)
    return function


def override(client: AdminClient, as_json: bool, name: str, value: float, **options: Any) -> None:
    """Override a limit by the API, with the acting options; say before and after."""
    answer = client.put(f"/limits/{quote(name, safe='')}", {"value": value, **options})
    if as_json:
        emit_json(answer)
        return
    change = f"{name}: {number(answer['before'])} -> {number(answer['after'])}"
    click.echo(f"{would(answer)}{change} for {seconds(answer['ttl'])}")


def would(answer: dict[str, Any]) -> str:
    """How the line of a change begins."""
    return "would change " if answer["dry_run"] else ""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people; only the last column folds, and only on a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns[:-1]:
        drawn.add_column(column, no_wrap=True)
    drawn.add_column(columns[-1], overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else MAX_WIDTH).print(drawn, crop=False)


def number(value: float | bool | None) -> str:
    """A number as people write it: no trailing .0, a dash for what is not there."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def seconds(value: float | None) -> str:
    """A duration as people write it."""
    if value is None:
        return "-"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
