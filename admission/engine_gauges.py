"""The gauges and counters of each engine behind the gate, by its name."""

from collections.abc import Callable, Iterator

from surgetank.admission.routing.side import SideState, Why
from surgetank.admission.snapshot import DeskSnapshot, EngineLook
from surgetank.telemetry.registry import Registry, Sample

_PLAIN: dict[str, Callable[[EngineLook], float | None]] = {
    "backend_up": lambda engine: engine.card is not None,
    "backend_running_sequences": lambda engine: engine.dispatched_seqs,
    "backend_slots": lambda engine: int(engine.slots),
    "backend_wait_seconds": lambda engine: engine.wait,
    "backend_moves_total": lambda engine: engine.moved_away,
    "backend_ejections_total": lambda engine: engine.ejections,
    "backend_restarts_total": lambda engine: engine.restarts,
}


def register_engine_gauges(registry: Registry, read: Callable[[], DeskSnapshot]) -> None:
    """Let the registry read them; `read` tells the desk of the scrape that is under way."""

    def plain(value: Callable[[EngineLook], float | None]) -> Callable[[], Iterator[Sample]]:
        """One number of each engine; nothing where nothing is known."""

        def read_all() -> Iterator[Sample]:
            for engine in read().engines:
                if (number := value(engine)) is not None:
                    yield {"backend": engine.name}, number

        return read_all

    def info() -> Iterator[Sample]:
        for engine in read().engines:
            labels = {"maker": engine.vitals.kind, "role": engine.role.value}
            yield {"backend": engine.name, **labels}, 1

    def state() -> Iterator[Sample]:
        for engine in read().engines:
            for each in SideState:
                yield {"backend": engine.name, "state": each}, engine.state is each

    def routed() -> Iterator[Sample]:
        for engine in read().engines:
            for why in Why:
                yield {"backend": engine.name, "why": why}, engine.routed.get(why, 0)

    def age() -> Iterator[Sample]:
        desk = read()
        for engine in desk.engines:
            if (seconds := _age(engine, desk.at)) is not None:
                yield {"backend": engine.name}, seconds

    def signal_available() -> Iterator[Sample]:
        for engine in read().engines:
            if engine.vitals.foreign:
                for signal, there in engine.vitals.available().items():
                    yield {"backend": engine.name, "signal": signal}, there

    for name, value in _PLAIN.items():
        registry.source(name, plain(value))
    registry.source("backend_info", info)
    registry.source("backend_state", state)
    registry.source("backend_requests_total", routed)
    registry.source("backend_metrics_age_seconds", age)
    registry.source("backend_signal_available", signal_available)


def _age(engine: EngineLook, now: float) -> float | None:
    """Since it last told anything; None: it never did."""
    if engine.vitals.foreign:
        return engine.vitals.age(now)
    return None if engine.last_step is None else engine.stalled_for
