"""What goes wrong in a run, and when: written as KIND@AT+SECONDS, with a value where one is due."""

import re
from enum import StrEnum
from functools import partial

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from surgetank.control.lab.engine import SimulatedEngine
from surgetank.control.lab.shared import SharedState
from surgetank.control.lab.timeline import Timeline


class FaultKind(StrEnum):
    """Each kind of fault."""

    STALL = "stall"  # the engine stands still, as after SIGSTOP
    SLOW = "slow"  # steps take `value` times as long
    CRASH = "crash"  # everything in the engine is lost; it is down for the time
    KV_LOSS = "kv-loss"  # `value` of the KV blocks are gone
    METRIC_FREEZE = "metric-freeze"  # tokens flow, step records do not
    REDIS_LOSS = "redis-loss"  # no sidecar gets an answer of it
    REDIS_RESTART = "redis-restart"  # it forgets everything, and may be away for a time


_VALUES = {FaultKind.SLOW: (1.0, 1000.0), FaultKind.KV_LOSS: (0.0, 1.0)}
OF_REDIS = frozenset({FaultKind.REDIS_LOSS, FaultKind.REDIS_RESTART})
_FORM = re.compile(
    r"(?P<kind>[a-z-]+)@(?P<at>[0-9.]+)(\+(?P<seconds>[0-9.]+))?(x(?P<value>[0-9.]+))?"
)


class FaultError(ValueError):
    """A fault that cannot be understood; says which forms there are."""


class Fault(BaseModel):
    """One fault, of one engine or of all, or of the Redis that sidecars share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind = Field(description="What goes wrong.")
    at: float = Field(ge=0, description="When it begins, seconds.")
    seconds: float = Field(
        default=0.0, ge=0, le=86_400, description="How long it lasts; only a restart may take none."
    )
    value: float = Field(default=1.0, description="The slow-down, or the share of KV blocks.")
    engine: int | None = Field(default=None, ge=0, description="Which engine; unset: all.")

    @model_validator(mode="after")
    def _values_make_sense(self) -> "Fault":
        if not self.seconds and self.kind is not FaultKind.REDIS_RESTART:
            raise ValueError(f"seconds of {self.kind} is 0; allowed: greater than 0")
        low, high = _VALUES.get(self.kind, (1.0, 1.0))
        if not low <= self.value <= high:
            raise ValueError(
                f"value of {self.kind} is {self.value:g}; allowed: {low:g} to {high:g}"
            )
        return self

    def strike(self, engine: SimulatedEngine) -> None:
        """It begins, now."""
        match self.kind:
            case FaultKind.STALL:
                engine.stop(self.seconds)
            case FaultKind.SLOW:
                engine.slow(self.value, self.seconds)
            case FaultKind.CRASH:
                engine.crash(self.seconds)
            case FaultKind.KV_LOSS:
                engine.lose_kv(self.value, self.seconds)
            case FaultKind.METRIC_FREEZE:
                engine.freeze_metrics(self.seconds)

    def strike_shared(self, shared: SharedState) -> None:
        """It begins, now, and is one of Redis."""
        match self.kind:
            case FaultKind.REDIS_LOSS:
                shared.lose(self.seconds)
            case FaultKind.REDIS_RESTART:
                shared.restart(self.seconds)


def parse_fault(text: str) -> Fault:
    """`stall@20+10`, `slow@20+10x3`, `kv-loss@20+10x0.5`, `redis-restart@20`. Raises FaultError."""
    match = _FORM.fullmatch(text)
    try:
        if match is None or not (match["seconds"] or match["kind"] == FaultKind.REDIS_RESTART):
            raise ValueError("it is not of the form KIND@AT+SECONDS[xVALUE]")
        return Fault(
            kind=FaultKind(match["kind"]),
            at=float(match["at"]),
            seconds=float(match["seconds"] or 0.0),
            value=float(match["value"] or 1.0),
        )
    except ValueError as error:
        said = str(error)
        if isinstance(error, ValidationError):
            said = error.errors()[0]["msg"].removeprefix("Value error, ")
        kinds = ", ".join(FaultKind)
        raise FaultError(f"fault {text!r}: {said}; kinds: {kinds}") from error


def schedule(
    faults: tuple[Fault, ...],
    engines: list[SimulatedEngine],
    shared: SharedState | None,
    timeline: Timeline,
) -> None:
    """Let each begin at its time."""
    for fault in faults:
        if fault.kind in OF_REDIS:
            if shared is not None:
                timeline.call_at(fault.at, partial(fault.strike_shared, shared))
            continue
        for number, engine in enumerate(engines):
            if fault.engine in (None, number):
                timeline.call_at(fault.at, partial(fault.strike, engine))
