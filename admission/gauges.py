"""The gauges that are read from the desk."""

from collections.abc import Callable, Iterator

from surgetank.admission.engine_gauges import register_engine_gauges
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.telemetry.registry import Registry, Sample

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

    registry.source("queue_oldest_age_seconds", oldest_age)
    registry.source("predicted_wait_seconds", predicted_wait)
    for name, value in _PLAIN.items():
        registry.source(name, known(value))
    registry.source("limit", limit)
    registry.source("limit_override", limit_override)
    registry.source("limit_usage", limit_usage)
    register_engine_gauges(registry, read)
