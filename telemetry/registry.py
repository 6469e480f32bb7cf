"""One process's metrics: children by catalogue name, gauge sources, and a reading of them all."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from surgetank.telemetry.catalog import CATALOG, find
from surgetank.telemetry.family import (
    Counter,
    Family,
    Histogram,
    HistogramReading,
    LabelValues,
    check_labels,
)
from surgetank.telemetry.metricspec import (
    OTHER,
    MetricSpec,
    MetricType,
    Openness,
    Process,
)
from surgetank.telemetry.slo import SloTargets

log = logging.getLogger(__name__)

MAX_OWN_VALUES = 50  # of one open label
MAX_GAUGE_SERIES = 200  # of one gauge

T = TypeVar("T")
Sample = tuple[Mapping[str, str], float]
Source = Callable[[], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric at one moment; no samples where nothing can be known."""

    spec: MetricSpec
    samples: dict[LabelValues, float | HistogramReading]


class Registry:
    """Holds what one process exports, and refuses what the catalogue does not know.

    Counters and histograms exist from the start, at 0 for every combination of known label values.
    A gauge, and a counter that is kept elsewhere, is a callable read at scrape: what it does not
    yield is absent, never 0.
    """

    def __init__(self, process: Process, targets: SloTargets | None = None) -> None:
        if process is Process.BOTH:
            raise ValueError("process: a registry belongs to one process; allowed: sidecar, engine")
        self.process = process
        self.reads = 0  # how often everything was read
        self.targets = targets or SloTargets()
        self._known: dict[str, list[str]] = {}  # values of each open label
        self._own_labels: set[str] = set()  # those that take our names on first sight
        self._counters: dict[str, Family[Counter]] = {}
        self._histograms: dict[str, Family[Histogram]] = {}
        self._sources: dict[str, list[Source]] = {}
        for spec in CATALOG.values():
            if process.exports(spec):
                self._declare(spec)
        self._overflow = self.counter("telemetry_label_overflow_total")
        self._source_errors = self.counter("telemetry_source_errors_total")

    def counter(self, name: str) -> Family[Counter]:
        """A counter's family; LookupError when this process exports no such counter."""
        return self._find(self._counters, name, MetricType.COUNTER)

    def histogram(self, name: str) -> Family[Histogram]:
        """A histogram's family; LookupError when this process exports no such histogram."""
        return self._find(self._histograms, name, MetricType.HISTOGRAM)

    def source(self, name: str, read: Source) -> None:
        """Read a metric from `read()` at each scrape; it yields (labels by name, value).

        It is called on the thread that scrapes. It may yield nothing, and must be quick. Several
        sources may share a metric. LookupError when this process exports no such gauge, or
        counter kept elsewhere.
        """
        self._find(self._sources, name, "source").append(read)

    def allow(self, label: str, *values: str) -> None:
        """Put values on an open label's list, and start their series at 0.

        Only the writing thread may call this. LookupError when no metric has such an open label.
        """
        if label not in self._known:
            raise LookupError(f"{label}: no open label of that name; known: {sorted(self._known)}")
        known = self._known[label]
        known.extend(value for value in dict.fromkeys(values) if value not in known)
        families: list[Family[Counter] | Family[Histogram]] = [
            *self._counters.values(),
            *self._histograms.values(),
        ]
        for family in families:
            if label in family.spec.label_names:
                family.preset(self._combinations(family.spec))

    def admit(self, label: str, value: str) -> str:
        """What an open label says for a value: itself, or `other`, which is counted."""
        if value in self._known[label]:
            return value
        if label in self._own_labels and len(self._known[label]) < MAX_OWN_VALUES:
            self.allow(label, value)
            return value
        self._overflow.at(label).value += 1
        return OTHER

    def read(self) -> list[Reading]:
        """Every metric now, in the catalogue's order. See family.py for what is consistent."""
        self.reads += 1
        readings = []
        for name, spec in CATALOG.items():
            if name in self._counters:
                readings.append(_reading(self._counters[name]))
            elif name in self._histograms:
                readings.append(_reading(self._histograms[name]))
            elif name in self._sources:
                readings.append(Reading(spec, self._read_sources(spec)))
        return readings

    def _declare(self, spec: MetricSpec) -> None:
        for label in spec.labels:
            if label.openness is not Openness.CLOSED:
                self._known.setdefault(label.name, list(label.values))
            if label.openness is Openness.OURS:
                self._own_labels.add(label.name)
        if spec.read_when_scraped:
            self._sources[spec.name] = []
        elif spec.type is MetricType.COUNTER:
            counters = self._counters[spec.name] = Family(spec, Counter, self.admit)
            counters.preset(self._combinations(spec))
        else:
            edges = self._edges(spec)
            histograms = Family(spec, lambda: Histogram(edges), self.admit)
            histograms.preset(self._combinations(spec))
            self._histograms[spec.name] = histograms

    def _edges(self, spec: MetricSpec) -> tuple[float, ...]:
        if spec.buckets is None:
            raise ValueError(f"{spec.name}: a histogram without buckets in the catalogue")
        if not spec.slo:
            return spec.buckets.edges
        return spec.buckets.including(self.targets.named(spec.slo))

    def _find(self, table: dict[str, T], name: str, wanted: str) -> T:
        spec = find(name)
        if spec.name not in table:
            is_read = ", read when scraped" if spec.kept_elsewhere else ""
            raise LookupError(
                f"{spec.name}: a {spec.type} of {spec.process}{is_read}; "
                f"wanted a {wanted} of {self.process}"
            )
        return table[spec.name]

    def _combinations(self, spec: MetricSpec) -> Iterator[LabelValues]:
        """Every combination of the label values known so far; none while a label has no value."""
        return product(*(self._known.get(label.name, label.values) for label in spec.labels))

    def _read_sources(self, spec: MetricSpec) -> dict[LabelValues, float | HistogramReading]:
        """One broken source is absent, counted and logged; the others are served all the same."""
        samples: dict[LabelValues, float | HistogramReading] = {}
        try:
            for read in self._sources[spec.name]:
                for labels, value in read():
                    samples[_ordered(spec, labels)] = float(value)
            if len(samples) > MAX_GAUGE_SERIES:
                raise ValueError(f"{spec.name}: {len(samples)} series; allowed: {MAX_GAUGE_SERIES}")
        except Exception:  # a source is foreign code, and a scrape must survive it
            errors = self._source_errors.at(spec.name)
            errors.value += 1
            if errors.value == 1:  # the counter tells of the rest
                log.exception("%s cannot be read and is absent", spec.full_name)
            return {}
        return samples


def _ordered(spec: MetricSpec, labels: Mapping[str, str]) -> LabelValues:
    """Label values in the catalogue's order; ValueError when names or closed values differ."""
    if set(labels) != set(spec.label_names):
        raise ValueError(f"{spec.name}: labels are {spec.label_names}; got {tuple(labels)}")
    values = tuple(labels[name] for name in spec.label_names)
    check_labels(spec, values)
    return values


def _reading(family: Family[Counter] | Family[Histogram]) -> Reading:
    return Reading(family.spec, {key: child.read() for key, child in family.children().items()})
