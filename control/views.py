"""The admin API's answers: their shapes, and how each is read from the running parts."""

from collections.abc import Mapping

from pydantic import BaseModel, Field

from surgetank import __version__
from surgetank.admission.limits import SPECS, LimitView
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.drain import Drain
from surgetank.control.fleet.membership import FleetOut
from surgetank.engine.api import ModelCard
from surgetank.telemetry.recorder import Totals
from surgetank.telemetry.steprecord import StepRecord


class OverrideOut(BaseModel):
    """An operator's value that is in force."""

    value: float
    who: str
    why: str
    expires_in: float = Field(description="seconds")


class LimitOut(BaseModel):
    """One limit as it stands."""

    name: str
    value: float = Field(description="what holds now")
    base: float = Field(description="what holds without an override")
    minimum: float
    maximum: float
    unit: str
    whole: bool = Field(description="whether only whole numbers make sense")
    meaning: str
    usage: float | None = Field(description="how much of it is taken, where that can be known")
    override: OverrideOut | None


class EngineOut(BaseModel):
    """The engine, while it is there."""

    model: str
    architecture: str
    dtype: str
    device: str
    context_length: int
    kv_blocks: int
    kv_block_size: int
    kv_blocks_used: int | None
    max_num_seqs: int
    version: str
    pid: int


class BackendStateOut(BaseModel):
    """One engine in a line; `surgetank backends` tells the rest."""

    name: str
    state: str = Field(
        description="up, slow_start, draining, ejected, down, other_model or prefill_only"
    )
    running: int = Field(description="sequences in it")


class RequestsOut(BaseModel):
    """received equals the sum of the outcomes and those in flight."""

    received: int
    in_flight: int
    queued: int
    dispatched: int
    outcomes: dict[str, int]


class DrainOut(BaseModel):
    """Who drains the service, and why."""

    who: str
    why: str
    expires_in: float | None = Field(description="seconds; null: until it is ended")


class ControlOut(BaseModel):
    """The control loop about itself."""

    ticks: int
    policy_errors: int
    journal_failures: int


class StatusOut(BaseModel):
    """The service at a glance."""

    version: str
    state: str = Field(description="ready, backend_down or draining")
    uptime_seconds: float
    listeners: dict[str, str]
    engine: EngineOut | None
    backends: list[BackendStateOut]
    requests: RequestsOut
    limits: list[LimitOut]
    drain: DrainOut | None
    control: ControlOut
    fleet: FleetOut | None = Field(description="shares of quotas, and who leads")


def limits_out(
    views: tuple[LimitView, ...], usage: Mapping[str, float], now: float
) -> list[LimitOut]:
    """Every limit, with the time that its override has left."""
    return [
        LimitOut(
            name=view.name,
            value=view.current,
            base=min(view.base, view.maximum),
            minimum=view.minimum,
            maximum=view.maximum,
            unit=view.unit,
            whole=SPECS[view.name].whole,
            meaning=view.help,
            usage=usage.get(view.name),
            override=_override_out(view, now),
        )
        for view in views
    ]


def _override_out(view: LimitView, now: float) -> OverrideOut | None:
    held = view.override
    if held is None:
        return None
    return OverrideOut(
        value=held.value, who=held.who, why=held.why, expires_in=max(0.0, held.until - now)
    )


def engine_out(card: ModelCard, step: StepRecord | None) -> EngineOut:
    """A connected engine, from its card and its newest step."""
    return EngineOut(
        model=card.name,
        architecture=card.architecture,
        dtype=card.dtype,
        device=card.device,
        context_length=card.context_length,
        kv_blocks=card.kv_blocks,
        kv_block_size=card.kv_block_size,
        kv_blocks_used=step.kv_used if step and card.kv_blocks else None,
        max_num_seqs=card.max_num_seqs,
        version=card.engine_version,
        pid=card.pid,
    )


def status_out(
    *,
    desk: DeskSnapshot,
    totals: Totals,
    drain: Drain,
    control: ControlOut,
    listeners: dict[str, str],
    uptime: float,
    fleet: FleetOut | None = None,
) -> StatusOut:
    """The whole picture, from parts that were read at one moment."""
    state = "ready" if desk.backend_up else "backend_down"
    if desk.draining:
        state = "draining"
    return StatusOut(
        version=__version__,
        state=state,
        uptime_seconds=round(uptime, 3),
        listeners=listeners,
        engine=next(
            (engine_out(each.card, each.last_step) for each in desk.engines if each.card), None
        ),
        backends=[
            BackendStateOut(name=look.name, state=look.state, running=look.dispatched_seqs)
            for look in desk.engines
        ],
        requests=RequestsOut(
            received=totals.received,
            in_flight=totals.in_flight,
            queued=desk.queue_requests,
            dispatched=desk.dispatched,
            outcomes={outcome.value: count for outcome, count in totals.outcomes.items()},
        ),
        limits=limits_out(desk.limits, desk.limit_usage, desk.at),
        drain=_drain_out(drain, desk.at),
        control=control,
        fleet=fleet,
    )


def _drain_out(drain: Drain, now: float) -> DrainOut | None:
    hold = drain.hold
    if hold is None:
        return None
    left = None if hold.until is None else max(0.0, hold.until - now)
    return DrainOut(who=hold.who, why=hold.why, expires_in=left)
