"""Plain accumulators: a counter is a float in a slot, a histogram a list of counts.

One thread writes (the event loop, or the engine's step loop). A scraper on another thread takes no
lock: it reads a float or copies a list, each whole under the interpreter's own lock, and a table of
children is replaced, never changed. So a value is never torn and a histogram's count always equals
its +Inf bucket; its sum may differ by the observations made while it was being read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from surgetank.telemetry.metricspec import MetricSpec, Openness
from surgetank.telemetry.tracecontext import SpanId

LabelValues = tuple[str, ...]


class Counter:
    """An amount that only grows; add with `counter.value += amount`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def read(self) -> float:
        """The amount now."""
        return self.value


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation and the span that tells of it, as OpenMetrics has them."""

    value: float
    span: SpanId
    at: float  # wall clock


@dataclass(frozen=True, slots=True)
class HistogramReading:
    """A histogram at one moment; `counts` by bucket, not cumulated, the last one past all edges."""

    edges: tuple[float, ...]
    counts: list[int]
    sum: float
    exemplars: tuple[Exemplar | None, ...] = ()  # by bucket, the newest of each; empty: none at all

    @property
    def count(self) -> int:
        """How many observations."""
        return sum(self.counts)


class Histogram:
    """Counts of observations by bucket, and their sum."""

    __slots__ = ("_counts", "_edges", "_exemplars", "_sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0.0
        self._exemplars: list[Exemplar | None] = []

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value, or the same value several times."""
        self._counts[bisect_left(self._edges, value)] += times
        self._sum += value * times

    def exemplify(self, exemplar: Exemplar) -> None:
        """An observation, which was counted before, becomes its bucket's example."""
        if not self._exemplars:
            self._exemplars = [None] * len(self._counts)
        self._exemplars[bisect_left(self._edges, exemplar.value)] = exemplar

    def read(self) -> HistogramReading:
        """A copy that the writer no longer touches."""
        exemplars = tuple(self._exemplars)
        return HistogramReading(self._edges, self._counts.copy(), self._sum, exemplars)


Child = TypeVar("Child", bound=Counter | Histogram)


class Family(Generic[Child]):
    """One metric's children by their label values, in the order of the catalogue's labels."""

    def __init__(
        self, spec: MetricSpec, make: Callable[[], Child], admit: Callable[[str, str], str]
    ) -> None:
        """`admit(label, value)` says what an open label's value becomes."""
        self.spec = spec
        self._make = make
        self._admit = admit
        self._children: dict[LabelValues, Child] = {}

    def at(self, *values: str) -> Child:
        """The child with these label values; keep it where the path is hot.

        ValueError when the values are not those of the catalogue.
        """
        child = self._children.get(values)
        return self._meet(values) if child is None else child

    def children(self) -> dict[LabelValues, Child]:
        """All children; the table is never changed, so any thread may walk it."""
        return self._children

    def preset(self, combinations: Iterable[LabelValues]) -> None:
        """Start these series at 0, where they do not exist."""
        missing = {key: self._make() for key in combinations if key not in self._children}
        self._children = self._children | missing

    def _meet(self, values: LabelValues) -> Child:
        check_labels(self.spec, values)
        key = tuple(
            value if label.openness is Openness.CLOSED else self._admit(label.name, value)
            for label, value in zip(self.spec.labels, values)
        )
        self.preset([key])
        return self._children[key]


def check_labels(spec: MetricSpec, values: LabelValues) -> None:
    """ValueError unless there is one value per label and the closed ones are in the catalogue."""
    if len(values) != len(spec.labels):
        raise ValueError(
            f"{spec.name}: labels are {spec.label_names}; got {len(values)} values: {values}"
        )
    for label, value in zip(spec.labels, values):
        if label.openness is Openness.CLOSED and value not in label.values:
            raise ValueError(
                f"{spec.name}: label {label.name} is {value!r}; allowed: {', '.join(label.values)}"
            )
