"""Every metric, declared once: what any panel, alert or recorder may name."""

from collections.abc import Iterable

from surgetank.telemetry.aliases import ALIASES, ENGINES, REPEATED, STEERING, TOTAL, Alias
from surgetank.telemetry.buckets import SCRAPE
from surgetank.telemetry.catalog_engine import ENGINE_METRICS
from surgetank.telemetry.catalog_sidecar import SIDECAR_METRICS
from surgetank.telemetry.metricspec import (
    PREFIX,
    Declare,
    Label,
    Layer,
    MetricSpec,
    MetricType,
    Openness,
    Process,
    closed,
)

__all__ = [
    "ALIASES",
    "CATALOG",
    "ENGINES",
    "PREFIX",
    "REPEATED",
    "STEERING",
    "TOTAL",
    "Alias",
    "Layer",
    "MetricSpec",
    "MetricType",
    "Process",
    "find",
    "markdown",
]


def _open_labels(specs: Iterable[MetricSpec]) -> list[str]:
    return sorted(
        {
            label.name
            for spec in specs
            for label in spec.labels
            if label.openness is not Openness.CLOSED
        }
    )


def _sourced(specs: Iterable[MetricSpec]) -> list[str]:
    return sorted(spec.name for spec in specs if spec.read_when_scraped)


_OPERATION_METRICS = SIDECAR_METRICS + ENGINE_METRICS
_telemetry = Declare(Process.BOTH, Layer.TELEMETRY)

TELEMETRY_METRICS: tuple[MetricSpec, ...] = (
    _telemetry.counter(
        "telemetry_label_overflow_total",
        "Label values that became `other`: not on the label's list, or past its cap.",
        closed("label", *_open_labels(_OPERATION_METRICS)),
    ),
    _telemetry.counter(
        "telemetry_source_errors_total",
        "Times a metric could not be read at a scrape; it is then absent.",
        closed("metric", "build_info", *_sourced(_OPERATION_METRICS)),
    ),
    _telemetry.seconds(
        "telemetry_scrape_seconds", "Time to answer one scrape of this process.", buckets=SCRAPE
    ),
    _telemetry.gauge(
        "build_info",
        "Always 1; the labels say what is running.",
        Label("version", (), Openness.OURS),
        Label("python", (), Openness.OURS),
    ),
)

CATALOG: dict[str, MetricSpec] = {
    spec.name: spec for spec in _OPERATION_METRICS + TELEMETRY_METRICS
}


def find(name: str) -> MetricSpec:
    """The metric by its name, with or without the prefix; LookupError when there is none."""
    spec = CATALOG.get(name.removeprefix(PREFIX))
    if spec is None:
        raise LookupError(f"{name}: no such metric in the catalogue")
    return spec


_INTRODUCTION = """\
# Metrics

Generated from the catalogue by `surgetank docs metrics`; a test keeps it current.

Served as `/metrics` by the sidecar on its HTTP port and by the engine on port 8403. A ratio is two
counters; what cannot be known is absent, never 0. Labels that are not open start at 0.
"""


def markdown() -> str:
    """The whole catalogue as a page with one table."""
    rows = [
        _INTRODUCTION,
        "| Metric | Type | Process | Labels | Meaning |",
        "|---|---|---|---|---|",
    ]
    for layer in Layer:
        rows += [_row(spec) for spec in CATALOG.values() if spec.layer is layer]
    return "\n".join(rows) + "\n"


def _row(spec: MetricSpec) -> str:
    labels = "<br>".join(_label_text(label) for label in spec.labels)
    text = spec.help
    if spec.buckets is not None:
        edges = " ".join(f"{edge:g}" for edge in spec.buckets.edges)
        text += f" Buckets: {edges} ({spec.buckets.why})."
    if spec.slo:
        text += f" The {spec.slo.upper()} target is one more edge."
    return f"| `{spec.full_name}` | {spec.type} | {spec.process} | {labels} | {text} |"


def _label_text(label: Label) -> str:
    values = ", ".join(label.values)
    if label.openness is Openness.CLOSED:
        return f"{label.name}: {values}"
    return f"{label.name} (open)" + (f": {values}, ..." if values else "")
