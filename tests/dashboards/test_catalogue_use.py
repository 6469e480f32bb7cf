"""Boards, rules and alerts name only what exists, and no metric is exported for nobody."""

import re
from collections.abc import Iterator

from surgetank.dashboards.alerts.table import ALERTS
from surgetank.dashboards.backends import BACKENDS
from surgetank.dashboards.boards.table import BOARDS
from surgetank.dashboards.grafana import to_json
from surgetank.dashboards.promql import TARGET_LABELS
from surgetank.dashboards.recordings import RECORDINGS
from surgetank.dashboards.rules import Record
from surgetank.telemetry.aliases import ALIASES, ENGINES
from surgetank.telemetry.catalog import CATALOG, PREFIX, MetricType, find

# Metrics that no panel or alert needs, and why they are exported all the same.
UNUSED: dict[str, str] = {}

RECORDS = [
    rule for group in (*RECORDINGS, BACKENDS) for rule in group.rules if isinstance(rule, Record)
]
RECORDED = {record.name for record in RECORDS}
# What Prometheus itself stores.
BUILT_IN = {"up", "ALERTS", "scrape_samples_scraped"}
UPSTREAM = {
    name + suffix
    for alias in ALIASES
    for engine in ENGINES
    for name in alias.candidates(engine)
    for suffix in alias.suffixes
}
EXPRESSIONS = [
    *(
        (f"{board.title}: {panel.title}", query.expr)
        for board in BOARDS
        for panel in board.panels
        for query in panel.queries
    ),
    *((f"alert {alert.name}", alert.expr) for alert in ALERTS),
    *((f"record {record.name}", record.expr) for record in RECORDS),
]
_WORDS = {
    *("abs", "sum", "max", "min", "avg", "count", "group", "topk", "rate", "increase", "resets"),
    *("changes", "absent", "scalar", "vector", "label_replace", "histogram_quantile"),
    *("max_over_time", "min_over_time", "avg_over_time", "quantile_over_time"),
    *("by", "without", "on", "group_left"),
    *("and", "or", "unless", "bool", "end"),
}


def selectors(expr: str) -> Iterator[tuple[str, str]]:
    """Every metric that an expression reads, with its matchers."""
    bare = re.sub(r'"[^"]*"', '""', expr)
    bare = re.sub(r"\b(by|without|on|group_left)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\[[^]]*\]( offset \w+)?", "", bare)
    for name, matchers in re.findall(r"([a-zA-Z_][\w:]*)(\{[^}]*\})?", bare):
        if name not in _WORDS:
            yield name, matchers


def family(name: str) -> str:
    """The catalogue's name behind a series' name."""
    for suffix in ("_bucket", "_count", "_sum"):
        base = name.removesuffix(suffix).removeprefix(PREFIX)
        if name.endswith(suffix) and base in CATALOG:
            assert CATALOG[base].type is MetricType.HISTOGRAM
            return base
    return name.removeprefix(PREFIX)


def test_every_name_exists() -> None:
    for where, expr in EXPRESSIONS:
        for name, matchers in selectors(expr):
            if name not in RECORDED | BUILT_IN | UPSTREAM:
                check_ours(where, name, matchers)


def check_ours(where: str, name: str, matchers: str) -> None:
    """The metric is in the catalogue, with the labels that are matched."""
    assert name.startswith(PREFIX), f"{where}: {name}"
    spec = find(family(name))
    for label in re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers):
        assert label in (*spec.label_names, *TARGET_LABELS, "le"), f"{where}: {label}"


def test_every_metric_is_looked_at() -> None:
    used = {family(name) for _, expr in EXPRESSIONS for name, _ in selectors(expr)}
    # A board's variables and annotations look too.
    everywhere = " ".join(to_json(board) for board in BOARDS)
    used |= {name for name in CATALOG if re.search(rf"{PREFIX}{name}\W", everywhere)}
    assert set(CATALOG) - used == set(UNUSED)
    assert all(UNUSED.values())


def test_every_recorded_series_is_used() -> None:
    read = {name for _, expr in EXPRESSIONS for name, _ in selectors(expr)}
    assert RECORDED - read == set()


def test_recorded_names_are_not_metrics_of_ours() -> None:
    assert not RECORDED & {spec.full_name for spec in CATALOG.values()}
