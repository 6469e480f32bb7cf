"""The engines behind the gate: what each is, gets and tells, and which laws run on what."""

from collections.abc import Iterator, Mapping
from math import inf

from surgetank.admission.routing.side import Why
from surgetank.admission.snapshot import DeskSnapshot, EngineLook
from surgetank.control.drain import Hold
from surgetank.control.insight.backend_shapes import (
    BackendOut,
    BackendsOut,
    HeldOut,
    LawOut,
    RoutedOut,
    SignalOut,
)
from surgetank.engine.api import ModelCard
from surgetank.engine.backends.remote.found import Found, Signals, Source, Vitals
from surgetank.telemetry.stepmodel import step_seconds

_SLOTS = {
    Source.TOLD: "as it tells",
    Source.CONFIGURED: "as configured",
    Source.GUESSED: "guessed: set its max_num_seqs in [[backends]] to what it runs at once",
}


def backends_out(desk: DeskSnapshot, holds: Mapping[str, Hold]) -> BackendsOut:
    """All of them, in the order of the configuration; `holds`: who drains which."""
    return BackendsOut(
        backends=[_backend_out(desk, look, holds.get(look.name)) for look in desk.engines]
    )


def _backend_out(desk: DeskSnapshot, look: EngineLook, hold: Hold | None) -> BackendOut:
    step, model, vitals, card = look.last_step, look.model, look.vitals, look.card
    found = vitals.found
    own = None if vitals.foreign else card
    models = [own.name] if own is not None else list(found.models) if found else []
    return BackendOut(
        name=look.name,
        maker=vitals.kind,
        role=look.role,
        state=look.state,
        since=desk.at - look.since,
        back_in=None if look.back_at is None else look.back_at - desk.at,
        drain=held_out(hold, desk.at),
        url=look.url,
        version="" if found is None else found.version,
        up=card is not None,
        model=None if card is None else card.name,
        models=models,
        device=None if own is None else own.device,
        pid=None if own is None else own.pid,
        slots=None if card is None else card.max_num_seqs,
        slots_now=None if card is None else int(look.slots),
        slots_learned=look.learned_slots,
        requests=look.dispatched,
        running=look.dispatched_seqs,
        unread=look.unread,
        kv_used=look.kv_promised if look.kv_used is None else look.kv_used,
        wait=look.wait,
        routed=RoutedOut(
            **{why.value: look.routed.get(why, 0) for why in Why}, moved_away=look.moved_away
        ),
        faults=look.faults,
        ejections=look.ejections,
        restarts=look.restarts,
        stalled_for=look.stalled_for,
        step=None if step is None else step.step,
        step_seconds=None if step is None else step_seconds(step),
        speed=look.drain,
        step_model=None
        if model is None
        else {"t0": model.t0, "a": model.a, "b": model.b, "c": model.c},
        step_model_error=None if model is None else look.model_error,
        ledger_drift=look.drift,
        pushbacks=vitals.pushbacks,
        metrics_age=vitals.age(desk.at),
        signals=_signals(vitals) if vitals.foreign else [],
        notes=[] if found is None else list(found.notes),
        laws=[] if found is None else list(_laws(found, vitals, fitted=model is not None)),
    )


def held_out(hold: Hold | None, now: float) -> HeldOut | None:
    """Who drains, why, and for how long from `now` on."""
    if hold is None:
        return None
    left = None if hold.until is None else max(0.0, hold.until - now)
    return HeldOut(who=hold.who, why=hold.why, expires_in=left)


def _signals(vitals: Vitals) -> list[SignalOut]:
    return [
        SignalOut(
            signal=name, available=there, value=getattr(vitals.signals, name) if there else None
        )
        for name, there in vitals.available().items()
    ]


def _laws(found: Found, vitals: Vitals, *, fitted: bool) -> Iterator[LawOut]:
    """Which evidence each law has, with an engine that reports no steps."""
    signals = vitals.signals
    steps = "steps inferred from when its streams speak"
    yield LawOut(
        law="predicted wait, TPOT",
        runs_on=steps if fitted else f"{steps}; too few were seen yet",
    )
    yield LawOut(law="prompt sizes", runs_on="characters per token, learned from its answers")
    slots = found.card.max_num_seqs
    yield LawOut(law="slots", runs_on=f"{slots}, {_SLOTS[found.slots]}")
    queue = "its own queue, and " if signals.waiting is not None else ""
    yield LawOut(law="in-flight limit", runs_on=f"{queue}what it turns away (429, 503, 529)")
    yield LawOut(law="KV gate", runs_on=_kv(found.card, signals))
    yield LawOut(law="stall", runs_on=f"silence of {_signs(vitals)}")
    drift = "its own count" if signals.running is not None else "nothing: it tells no count"
    yield LawOut(law="ledger drift, room for others", runs_on=drift)


def _signs(vitals: Vitals) -> str:
    """By whose silence a stall is known."""
    if vitals.signals.output_tokens is not None:
        return "its count of output tokens"
    if vitals.patience is None:
        return "its streams; of plain answers once one was seen"
    if vitals.patience == inf:
        return "its streams; not of plain answers: one of them has no bound"
    return f"its streams, or of plain answers for {vitals.patience:.0f} s"


def _kv(card: ModelCard, signals: Signals) -> str:
    used = "the share in use that it tells"
    if not card.kv_blocks:
        return used if signals.kv_used is not None else "nothing: it tells neither size nor use"
    pool = f"promises against {card.kv_blocks} blocks of {card.kv_block_size} tokens"
    return f"{pool}, and {used}" if signals.kv_used is not None else pool
