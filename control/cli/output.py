"""How every command speaks: tables or JSON on stdout, one sentence on stderr, one exit code."""

import contextlib
import functools
import getpass
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote

import click

from surgetank.control.client import AdminClient, ApiError, Unreachable

FAILED, USAGE, UNREACHABLE = 1, 2, 3
MAX_WIDTH = 10_000  # characters of a line that goes into a file or a pipe
VERDICT_STYLE = {"healthy": "green", "clients": "yellow", "limit": "yellow", "backend": "red"}
_AS_JSON = "surgetank.as_json"
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


fleet_option = click.option(
    "--fleet", is_flag=True, help="At every sidecar that shares our Redis, not this one alone."
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


@dataclass(frozen=True, slots=True)
class Amount:
    """A limit's new value: a number, a share of what holds without an override, or the highest
    allowed. A share of an override would be another one each time that it is asked for."""

    factor: float | None  # of the base; infinite: the highest
    value: float = 0.0

    def of(self, limit: dict[str, Any]) -> float:
        """For a limit as the admin API tells it: kept in its range, whole where it is whole."""
        if self.factor is None:
            return self.value
        if self.factor == math.inf:
            return float(limit["maximum"])
        wanted = limit["base"] * self.factor
        if limit["whole"]:
            wanted = math.floor(wanted)
        return float(min(max(wanted, limit["minimum"]), limit["maximum"]))


class AmountType(click.ParamType[Amount]):
    """An Amount from 64, 0.7, 50% or max."""

    name = "value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Amount:
        """A usage error names the allowed forms."""
        if isinstance(value, Amount):
            return value
        text = str(value)
        if text == "max":
            return Amount(math.inf)
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            self.fail(f"{text!r} is not a value; allowed: 64, 0.7, 50%, max", param, ctx)
        if not text.endswith("%"):
            return Amount(None, number)
        if not 0 < number < math.inf:
            self.fail(f"{text!r} is not a share; allowed: above 0%", param, ctx)
        return Amount(number / 100)


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


class Commands(click.Group):
    """Groups of commands whose wrong usage is JSON, too, where a word asks for that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remembers what was asked for before the words are taken apart."""
        ctx.meta.setdefault(_AS_JSON, "--json" in args)
        with _told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """The command's end is its own; of its words click complains."""
        with _told(ctx):
            return super().invoke(ctx)


@contextlib.contextmanager
def _told(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        if not ctx.meta[_AS_JSON]:
            raise
        fail(True, USAGE, "usage", error.format_message())


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


def found(client: AdminClient, name: str) -> dict[str, Any] | None:
    """The limit as the service tells it; None: it knows none of that name."""
    limits: list[dict[str, Any]] = client.get("/limits")["limits"]
    return next((limit for limit in limits if limit["name"] == name), None)


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


def number(value: float | bool | str | None) -> str:
    """A number as people write it: no trailing .0, a dash for what is not there; words as they
    are."""
    if value is None or isinstance(value, str):
        return value or "-"
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
