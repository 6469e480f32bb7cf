"""The KV pool as gate and engine see it; of another maker's engine, what it tells of it."""

from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.diagnose.facts import Facts
from surgetank.control.diagnose.look import Look
from surgetank.control.insight.shapes import MemoryOut
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Priority


def memory_out(looks: tuple[Look, ...], card: ModelCard | None) -> MemoryOut:
    """From the newest step and the gate's own books, or from the newest look at its metrics."""
    facts = Facts.of(looks)
    desk, laws = facts.now, facts.now.laws
    pool = dict[str, object]()
    if card is not None:
        pool = _foreign(desk, card) if desk.vitals.foreign else _own(desk, card)
    return MemoryOut.model_validate(
        {
            "blocks": desk.kv_blocks,
            "promised": desk.kv_blocks_reserved,
            "share": laws.kv_used,
            "reserve": desk.view(Limit.KV_RESERVE).current,
            "reserve_low": desk.view(Limit.KV_RESERVE_LOW).current,
            "closed": laws.kv_closed,
            "preempted_tokens": facts.flow.preempted,
            "waste": facts.waste,
            **pool,
        }
    )


def _own(desk: DeskSnapshot, card: ModelCard) -> dict[str, object]:
    size, step = card.kv_block_size, desk.last_step
    pool: dict[str, object] = {
        "block_tokens": size,
        "bytes": card.kv_blocks * size * card.kv_bytes_per_token,
    }
    if step is None:
        return pool
    stored = step.kv_stored_tokens / (step.kv_used * size) if step.kv_used else None
    return pool | {
        "used": step.kv_used,
        "cached": step.kv_cached,
        "free": step.kv_free,
        "fragmentation": None if stored is None else 1.0 - stored,
        "held": {each.label: step.kv_held[each] for each in Priority},
    }


def _foreign(desk: DeskSnapshot, card: ModelCard) -> dict[str, object]:
    signals, blocks = desk.vitals.signals, card.kv_blocks
    pool: dict[str, object] = {"preempted_tokens": None, "waste": None}
    tells = [
        name
        for name, told in (("its size", blocks), ("the share in use", signals.kv_used is not None))
        if told
    ]
    pool["note"] = (
        f"{desk.vitals.kind} tells {' and '.join(tells) or 'nothing'} of its KV pool; "
        "who holds it, and what its prefix cache holds, is not told"
    )
    if blocks:
        pool["block_tokens"] = card.kv_block_size
    if blocks and signals.kv_used is not None:
        used = round(signals.kv_used * blocks)
        pool |= {"used": used, "free": blocks - used}
    if signals.preemptions is not None:
        pool["preemptions"] = int(signals.preemptions)
    return pool
