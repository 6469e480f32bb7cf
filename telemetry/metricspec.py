"""What the catalogue says of one metric: the types of its entries, and their label sets."""

from dataclasses import dataclass, replace
from enum import StrEnum

from surgetank.telemetry.buckets import Buckets
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, QueueExit, Reason, StepKind

PREFIX = "surgetank_"
OTHER = "other"  # what an open label says of a value that is not on its list
UNKNOWN = "unknown"  # the request ended before it named the thing


class Layer(StrEnum):
    """Where an operator looks for a metric, from the client inwards."""

    REQUEST = "request"
    BATCH = "batch"
    MEMORY = "memory"
    COMPUTE = "compute"
    ADMISSION = "admission"
    CONTROL = "control"
    RETRY = "retry"
    TELEMETRY = "telemetry"


class MetricType(StrEnum):
    """The exposition formats' own words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Process(StrEnum):
    """Who exports a metric; a registry belongs to one process."""

    SIDECAR = "sidecar"
    ENGINE = "engine"
    BOTH = "both"

    def exports(self, spec: "MetricSpec") -> bool:
        """Whether this process's registry holds the metric."""
        return spec.process in (self, Process.BOTH)


class Openness(StrEnum):
    """Who may add values to a label."""

    CLOSED = "closed"  # nobody: anything else is a fault in our code
    ALLOWED = "allowed"  # we may; a client's other words become `other`
    OURS = "ours"  # our own names, taken on first sight up to a cap


@dataclass(frozen=True, slots=True)
class Label:
    """One label and the values it can have; an open label begins with `values`."""

    name: str
    values: tuple[str, ...] = ()
    openness: Openness = Openness.CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric, declared once. `name` is without the prefix and with its `_total`."""

    name: str
    layer: Layer
    type: MetricType
    process: Process
    help: str
    unit: str = ""  # base unit, also the end of the name; empty for a plain count of events
    labels: tuple[Label, ...] = ()
    buckets: Buckets | None = None  # of a histogram
    slo: str = ""  # `ttft` or `tpot`: whose target becomes one more edge
    kept_elsewhere: bool = False  # a counter that is read when scraped, as gauges are

    @property
    def full_name(self) -> str:
        """The name as it is scraped."""
        return PREFIX + self.name

    @property
    def read_when_scraped(self) -> bool:
        """Whether it comes from a source, and is absent where that has nothing to say."""
        return self.kept_elsewhere or self.type is MetricType.GAUGE

    @property
    def label_names(self) -> tuple[str, ...]:
        """In the order in which a child's values are given."""
        return tuple(label.name for label in self.labels)


def closed(name: str, *values: str) -> Label:
    """A label whose values are all known."""
    return Label(name, values)


MODEL = Label("model", (UNKNOWN, OTHER), Openness.ALLOWED)
LIMIT = Label("limit", (), Openness.OURS)
POLICY = Label("policy", (), Openness.OURS)
CAUSE = Label("cause", ("operator", "expiry"), Openness.OURS)
BACKEND = Label("backend", (), Openness.OURS)  # an engine's name, as configured
MAKER = Label("maker", (), Openness.OURS)
# What tells an attempt number: a header, or the gate's own memory; `none` on a first try.
DETECTED_BY = Label(
    "detected_by",
    (
        "none",
        "grpc-previous-rpc-attempts",
        "x-stainless-retry-count",
        "x-envoy-attempt-count",
        "amz-sdk-request",
        "x-surgetank-attempt",
        "fingerprint",
        OTHER,
    ),
    Openness.ALLOWED,
)
PRIORITIES = tuple(priority.label for priority in Priority)  # indexed by Priority
PRIORITY = closed("priority", *PRIORITIES)
LANE = closed("lane", *Lane)
OUTCOME = closed("outcome", *Outcome)
REASON = closed("reason", *Reason)
QUEUE_EXIT = closed("outcome", *QueueExit)
STEP_KIND = closed("kind", *StepKind)


@dataclass(frozen=True, slots=True)
class Declare:
    """Writes the entries of one process's layer, so that each reads as one sentence."""

    process: Process
    layer: Layer

    def counter(self, name: str, help: str, *labels: Label, unit: str = "") -> MetricSpec:
        """A count of events, or an amount that only grows."""
        return self._spec(MetricType.COUNTER, name, help, labels, unit)

    def source_counter(self, name: str, help: str, *labels: Label, unit: str = "") -> MetricSpec:
        """An amount that only grows and that somebody else keeps: read when scraped."""
        spec = self._spec(MetricType.COUNTER, name, help, labels, unit)
        return replace(spec, kept_elsewhere=True)

    def gauge(self, name: str, help: str, *labels: Label, unit: str = "") -> MetricSpec:
        """A value read when scraped."""
        return self._spec(MetricType.GAUGE, name, help, labels, unit)

    def seconds(
        self, name: str, help: str, *labels: Label, buckets: Buckets, slo: str = ""
    ) -> MetricSpec:
        """A histogram of durations."""
        return self._spec(MetricType.HISTOGRAM, name, help, labels, "seconds", buckets, slo)

    def _spec(
        self,
        kind: MetricType,
        name: str,
        help: str,
        labels: tuple[Label, ...],
        unit: str,
        buckets: Buckets | None = None,
        slo: str = "",
    ) -> MetricSpec:
        return MetricSpec(
            name=name,
            layer=self.layer,
            type=kind,
            process=self.process,
            help=help,
            unit=unit,
            labels=labels,
            buckets=buckets,
            slo=slo,
        )
