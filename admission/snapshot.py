"""What the desk looks like at one moment, and the gauges that are read from it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from surgetank.admission.flow import Flow
from surgetank.admission.laws import LawsView
from surgetank.admission.limits import Limit, LimitView
from surgetank.admission.outcome import Refusal
from surgetank.admission.permit import Ledger
from surgetank.admission.queue import Queue, QueueLevel
from surgetank.admission.ticket import Ticket
from surgetank.engine.backends.remote.found import Vitals
from surgetank.telemetry.registry import Registry, Sample
from surgetank.telemetry.steprecord import StepRecord


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that is over, kept for a while for `status` and `explain`."""

    ticket: Ticket
    refusal: Refusal | None  # None when it was served


@dataclass(frozen=True, slots=True)
class DeskSnapshot:
    """The desk at `at` (monotonic seconds). None stands for what cannot be known."""

    at: float
    model: str | None  # None while the engine is not there
    draining: bool
    in_flight: int  # requests received and not ended
    queue: tuple[QueueLevel, ...]
    dispatched: int  # requests in the engine
    dispatched_seqs: int
    kv_blocks_reserved: int
    kv_blocks: int | None
    drain_rate: float  # choices per second
    stalled_for: float | None  # seconds without a step while the engine has work; None = down
    last_step: StepRecord | None
    laws: LawsView
    flow: Flow
    tpot_target: float  # seconds
    retry_budget: float  # engine-seconds
    limits: tuple[LimitView, ...]
    limit_usage: dict[str, float]
    ignored_headers: dict[tuple[str, str], int]  # by header and problem
    unheard: tuple[int, int] = (0, 0)  # sequences sent and taken back since its last report but one
    vitals: Vitals = field(default_factory=Vitals)  # what the engine tells beside its steps

    @property
    def backend_up(self) -> bool:
        """Whether the engine is connected."""
        return self.model is not None

    @property
    def ledger_drift(self) -> int | None:
        """Sequences that we count in the engine less those that it reported, beyond what may still
        be on the way; None before it did."""
        if self.vitals.foreign:
            return self.vitals.drift
        step = self.last_step
        if step is None:
            return None
        apart = self.dispatched_seqs - sum(step.running + step.waiting)
        sent, taken_back = self.unheard
        return apart - min(max(apart, -taken_back), sent)

    def view(self, name: Limit) -> LimitView:
        """One limit as it stands."""
        return next(view for view in self.limits if view.name is name)

    @property
    def queue_requests(self) -> int:
        """Waiting requests of all classes; one of n choices counts n."""
        return sum(sum(level.requests.values()) for level in self.queue)

    @property
    def queue_tokens(self) -> int:
        """Prompt tokens of everything that waits."""
        return sum(level.tokens for level in self.queue)

    @property
    def queue_oldest_age(self) -> float | None:
        """Seconds; None when nothing waits."""
        ages = (level.oldest_age for level in self.queue)
        return max((age for age in ages if age is not None), default=None)


def limit_usage(
    queue: Queue, ledger: Ledger, levels: tuple[QueueLevel, ...], kv_blocks: int | None
) -> dict[str, float]:
    """How much of each limit is taken, where that can be known; by the limit's name."""
    usage = {
        Limit.QUEUE_REQUESTS.value: float(queue.requests),
        Limit.QUEUE_TOKENS.value: float(queue.tokens),
        Limit.QUEUE_WAIT.value: max(level.oldest_age or 0.0 for level in levels),
        Limit.IN_FLIGHT_SEQS.value: float(ledger.seqs),
    }
    if kv_blocks:
        usage[Limit.KV_RESERVE.value] = ledger.kv_blocks / kv_blocks
    return usage


_PLAIN: dict[str, Callable[[DeskSnapshot], float | None]] = {
    "wait_threshold_seconds": lambda desk: desk.laws.threshold,
    "queue_threshold_requests": lambda desk: desk.laws.queue_bound,
    "request_cost_seconds": lambda desk: desk.laws.mean_cost,
    "drain_rate": lambda desk: desk.laws.drain,
    "step_model_fitted": lambda desk: desk.laws.fitted,
    "step_model_error_ratio": lambda desk: desk.laws.error if desk.laws.fitted else None,
    "retry_budget_seconds": lambda desk: desk.retry_budget,
    "brownout_level": lambda desk: desk.view(Limit.BROWNOUT_LEVEL).current,
    "ledger_drift": lambda desk: desk.ledger_drift,
}


def register_gauges(registry: Registry, look: Callable[[], DeskSnapshot]) -> None:
    """Let the registry read the desk's gauges: of one page, all are of one look."""
    seen: tuple[int, DeskSnapshot] | None = None

    def read() -> DeskSnapshot:
        nonlocal seen
        if seen is None or seen[0] != registry.reads:
            seen = registry.reads, look()
        return seen[1]

    def oldest_age() -> Iterator[Sample]:
        for level in read().queue:
            if level.oldest_age is not None:
                yield {"priority": level.priority.label}, level.oldest_age

    def limit() -> Iterator[Sample]:
        for view in read().limits:
            yield {"limit": view.name, "bound": "current"}, view.current
            yield {"limit": view.name, "bound": "min"}, view.minimum
            yield {"limit": view.name, "bound": "max"}, view.maximum

    def limit_override() -> Iterator[Sample]:
        for view in read().limits:
            yield {"limit": view.name}, view.override is not None

    def limit_usage() -> Iterator[Sample]:
        for name, used in read().limit_usage.items():
            yield {"limit": name}, used

    def predicted_wait() -> Iterator[Sample]:
        if (wait := read().laws.wait) is not None:
            yield {"term": "slot"}, wait.slot
            yield {"term": "prefill"}, wait.prefill
            yield {"term": "age"}, wait.age
            yield {"term": "total"}, wait.seconds

    def known(value: Callable[[DeskSnapshot], float | None]) -> Callable[[], Iterator[Sample]]:
        """A gauge without labels; nothing where nothing is known."""

        def read_one() -> Iterator[Sample]:
            if (number := value(read())) is not None:
                yield {}, number

        return read_one

    def backend_up() -> Iterator[Sample]:
        yield {"backend": read().vitals.kind}, read().backend_up

    def backend_age() -> Iterator[Sample]:
        desk = read()
        age = desk.stalled_for if desk.last_step is not None else None
        if desk.vitals.foreign:
            age = desk.vitals.age(desk.at)
        if age is not None:
            yield {"backend": desk.vitals.kind}, age

    def signal_available() -> Iterator[Sample]:
        vitals = read().vitals
        if vitals.foreign:
            for signal, there in vitals.available().items():
                yield {"backend": vitals.kind, "signal": signal}, there

    registry.source("queue_oldest_age_seconds", oldest_age)
    registry.source("predicted_wait_seconds", predicted_wait)
    for name, value in _PLAIN.items():
        registry.source(name, known(value))
    registry.source("limit", limit)
    registry.source("limit_override", limit_override)
    registry.source("limit_usage", limit_usage)
    registry.source("backend_up", backend_up)
    registry.source("backend_metrics_age_seconds", backend_age)
    registry.source("backend_signal_available", signal_available)
