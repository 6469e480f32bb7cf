"""The engines behind the gate: what each is and tells, and which laws therefore run on what."""

from collections.abc import Iterator

from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.insight.shapes import BackendOut, BackendsOut, LawOut, SignalOut
from surgetank.engine.api import ModelCard
from surgetank.engine.backends.remote.found import Found, Signals, Source
from surgetank.telemetry.stepmodel import step_seconds

_SLOTS = {
    Source.TOLD: "as it tells",
    Source.CONFIGURED: "as configured",
    Source.GUESSED: "guessed: set backend.max_num_seqs to what it runs at once",
}


def backends_out(desk: DeskSnapshot, card: ModelCard | None) -> BackendsOut:
    """The one engine that there is."""
    return BackendsOut(backends=[_backend_out(desk, card)])


def _backend_out(desk: DeskSnapshot, card: ModelCard | None) -> BackendOut:
    step, laws, vitals = desk.last_step, desk.laws, desk.vitals
    model, found = laws.model, vitals.found
    own = card is not None and not vitals.foreign
    models = [card.name] if own and card is not None else list(found.models) if found else []
    return BackendOut(
        backend=vitals.kind,
        url=vitals.url,
        version="" if found is None else found.version,
        up=desk.backend_up,
        model=desk.model,
        models=models,
        device=card.device if own and card is not None else None,
        pid=card.pid if own and card is not None else None,
        slots=None if card is None else card.max_num_seqs,
        running=desk.dispatched_seqs,
        stalled_for=desk.stalled_for,
        step=None if step is None else step.step,
        step_seconds=None if step is None else step_seconds(step),
        speed=laws.drain,
        step_model=None
        if model is None
        else {"t0": model.t0, "a": model.a, "b": model.b, "c": model.c},
        step_model_error=laws.error if laws.fitted else None,
        ledger_drift=desk.ledger_drift,
        pushbacks=vitals.pushbacks,
        metrics_age=vitals.age(desk.at),
        signals=[
            SignalOut(
                signal=name,
                available=there,
                value=getattr(vitals.signals, name) if there else None,
            )
            for name, there in vitals.available().items()
        ]
        if vitals.foreign
        else [],
        notes=[] if found is None else list(found.notes),
        laws=[] if found is None else list(_laws(found, vitals.signals, desk)),
    )


def _laws(found: Found, signals: Signals, desk: DeskSnapshot) -> Iterator[LawOut]:
    """Which evidence each law has, with an engine that reports no steps."""
    steps = "steps inferred from when its streams speak"
    yield LawOut(
        law="predicted wait, TPOT",
        runs_on=steps if desk.laws.fitted else f"{steps}; too few were seen yet",
    )
    yield LawOut(law="prompt sizes", runs_on="characters per token, learned from its answers")
    slots = found.card.max_num_seqs
    yield LawOut(law="slots", runs_on=f"{slots}, {_SLOTS[found.slots]}")
    queue = "its own queue, and " if signals.waiting is not None else ""
    yield LawOut(law="in-flight limit", runs_on=f"{queue}what it turns away (429, 503, 529)")
    yield LawOut(law="KV gate", runs_on=_kv(found.card, signals))
    moves = "its count of output tokens" if signals.output_tokens is not None else "its streams"
    yield LawOut(law="stall", runs_on=f"silence of {moves}")
    drift = "its own count" if signals.running is not None else "nothing: it tells no count"
    yield LawOut(law="ledger drift", runs_on=drift)


def _kv(card: ModelCard, signals: Signals) -> str:
    used = "the share in use that it tells"
    if not card.kv_blocks:
        return used if signals.kv_used is not None else "nothing: it tells neither size nor use"
    pool = f"promises against {card.kv_blocks} blocks of {card.kv_block_size} tokens"
    return f"{pool}, and {used}" if signals.kv_used is not None else pool
