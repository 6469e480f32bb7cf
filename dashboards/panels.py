"""What a board is made of, as plain data: panels in rows, each saying what it means."""

from dataclasses import dataclass
from enum import StrEnum

from surgetank.dashboards.promql import Match, Not, Scope

# Expressions of panels follow the board's variables, and the graph's resolution.
VARIABLES = (("instance", "$instance"), ("model", "$model"))
here = Scope("$__rate_interval", VARIABLES)

TOKENS_PER_SECOND = "count:tok/s"  # a unit of our own, as Grafana writes them: 1.2K tok/s


class Kind(StrEnum):
    """How a panel draws its queries."""

    SERIES = "timeseries"
    STAT = "stat"
    NAME = "name"  # a stat that shows the series' name, not its value
    HEATMAP = "heatmap"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and what its series are called ({{label}} is replaced)."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture. `means` says what is seen, `do` what to do about it."""

    title: str
    means: str
    do: str
    queries: tuple[Query, ...]
    unit: str  # of Grafana's list
    kind: Kind = Kind.SERIES
    width: int = 12  # of 24; more where its line has room left
    height: int = 0  # in Grafana's cells; 0: what its kind takes
    newest: bool = False  # a stat of what is there now: what has ended is not shown
    stacked: bool = False
    warn: float | None = None  # drawn as a line; a stat turns yellow
    bad: float | None = None  # the same in red
    lowest: float | None = None
    highest: float | None = None
    texts: tuple[tuple[float, str, str], ...] = ()  # value, text, colour

    @property
    def description(self) -> str:
        """What Grafana shows behind the panel's little i."""
        return f"{self.means}\n\n**Then:** {self.do}"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that answer one question."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; `uid` is its place in every link, so it never changes."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)


def q(expr: str, legend: str) -> Query:
    """A query, short enough to stand in a list."""
    return Query(expr, legend)


def recorded(name: str, **match: Match) -> str:
    """A selector of a recorded series, which no catalogue knows, within the board's instances."""
    matchers = ['instance=~"$instance"'] + [_matcher(label, m) for label, m in match.items()]
    return f"{name}{{{','.join(matchers)}}}"


def _matcher(label: str, wanted: Match) -> str:
    if isinstance(wanted, Not):
        return f'{label}!~"{"|".join(wanted.values)}"'
    return f'{label}=~"{wanted if isinstance(wanted, str) else "|".join(wanted)}"'


def quantiles(metric: str, *by: str, of: tuple[float, ...] = (0.5, 0.95, 0.99)) -> list[Query]:
    """The usual quantiles of a histogram, one line each (and per value of `by`)."""
    label = "".join(f" {{{{{name}}}}}" for name in by)
    return [Query(here.quantile(p, metric, *by), f"p{p * 100:g}{label}") for p in of]
