"""Readings as text, in both of Prometheus' formats, without keeping other threads waiting."""

import time
from collections.abc import Iterable
from itertools import accumulate, repeat
from operator import itemgetter

from surgetank.telemetry.family import Exemplar, HistogramReading, LabelValues
from surgetank.telemetry.metricspec import MetricSpec
from surgetank.telemetry.registry import Reading

CHUNK = 100  # lines between two pauses
# A thread keeps the interpreter to itself for as long as 5 ms, unless it sleeps; no sleep at all
# would take it back before another thread has woken up.
PAUSE = 50e-6  # seconds


class Writer:
    """Writes the page of a scrape. Remembers what never changes of each line; one thread's."""

    def __init__(self) -> None:
        self._known: dict[str, dict[LabelValues, list[str]]] = {}

    def page(self, readings: list[Reading], *, openmetrics: bool) -> bytes:
        """OpenMetrics 1.0, or the text format 0.0.4; a metric without samples is left out."""
        parts: list[str] = []
        lines = 0
        for reading in readings:
            if not reading.samples:
                continue
            parts.append(_header(reading.spec, openmetrics))
            for values, value in reading.samples.items():
                beginnings = self._beginnings(reading.spec, values, value)
                endings = _endings(value) if openmetrics else repeat("\n")
                for beginning, each, ending in zip(beginnings, _numbers(value), endings):
                    parts += (beginning, _number(each), ending)
                lines += len(beginnings)
                if lines >= CHUNK:
                    time.sleep(PAUSE)
                    lines = 0
        if openmetrics:
            parts.append("# EOF\n")
        return "".join(parts).encode()

    def _beginnings(
        self, spec: MetricSpec, values: LabelValues, value: float | HistogramReading
    ) -> list[str]:
        """Name and labels of each of a sample's lines."""
        if spec.read_when_scraped:  # its labels may come and go
            return _lines(spec, values, value)
        known = self._known.setdefault(spec.name, {})
        if values not in known:
            known[values] = _lines(spec, values, value)
        return known[values]


def _header(spec: MetricSpec, openmetrics: bool) -> str:
    """In OpenMetrics a counter's family is named without the suffix of its samples."""
    name, text = spec.full_name, spec.help.replace("\\", r"\\").replace("\n", r"\n")
    if not openmetrics:
        return f"# HELP {name} {text}\n# TYPE {name} {spec.type}\n"
    name, text = name.removesuffix("_total"), text.replace('"', r"\"")
    unit = f"# UNIT {name} {spec.unit}\n" if spec.unit else ""
    return f"# HELP {name} {text}\n# TYPE {name} {spec.type}\n{unit}"


def _lines(spec: MetricSpec, values: LabelValues, value: float | HistogramReading) -> list[str]:
    name, labels = spec.full_name, list(zip(spec.label_names, values))
    if not isinstance(value, HistogramReading):
        return [_line(name, labels)]
    edges = [*(repr(float(edge)) for edge in value.edges), "+Inf"]
    buckets = [_line(f"{name}_bucket", [*labels, ("le", edge)]) for edge in edges]
    return [*buckets, _line(f"{name}_count", labels), _line(f"{name}_sum", labels)]


def _line(name: str, labels: list[tuple[str, str]]) -> str:
    said = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(labels, key=_FIRST))
    return f"{name}{{{said}}} " if said else f"{name} "


_FIRST = itemgetter(0)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


_SPECIAL = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def _number(value: float) -> str:
    text = repr(float(value))
    return _SPECIAL.get(text, text)


def _numbers(value: float | HistogramReading) -> list[float]:
    """Cumulated buckets, count and sum; the count is the last bucket's, so they always agree."""
    if not isinstance(value, HistogramReading):
        return [value]
    cumulated: list[float] = list(accumulate(value.counts))
    return [*cumulated, cumulated[-1], value.sum]


def _endings(value: float | HistogramReading) -> Iterable[str]:
    """What follows each number: an exemplar where there is one. Prometheus' own text has none."""
    if not isinstance(value, HistogramReading) or not value.exemplars:
        return repeat("\n")
    return [*map(_ending, value.exemplars), "\n", "\n"]


def _ending(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return "\n"
    span, said = exemplar.span, _number(exemplar.value)
    return f' # {{span_id="{span.span}",trace_id="{span.trace}"}} {said} {exemplar.at:.3f}\n'
