"""The KV pool as gate and engine see it; of other makers' engines, what they tell of it."""

from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.diagnose.facts import Facts
from surgetank.control.diagnose.look import Look
from surgetank.control.insight.shapes import MemoryOut
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Priority


def memory_out(looks: tuple[Look, ...]) -> MemoryOut:
    """From the newest step and the gate's own books, or from the newest look at their metrics."""
    facts = Facts.of(looks)
    desk, laws = facts.now, facts.now.laws
    pool = dict[str, object]()
    if desk.card is not None:
        pool = _foreign(desk) if desk.vitals.foreign else _own(desk, desk.card)
    return MemoryOut.model_validate(
        {
            "blocks": desk.kv_blocks,
            "usable": desk.kv_usable,
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


def _foreign(desk: DeskSnapshot) -> dict[str, object]:
    """Of all engines that are there; what one of them does not tell, nobody knows of all."""
    there = [(each.card, each.vitals) for each in desk.engines if each.card is not None]
    sizes = [card.kv_blocks for card, _ in there]
    shares = [vitals.signals.kv_used for _, vitals in there]
    preemptions = [vitals.signals.preemptions for _, vitals in there]
    pool: dict[str, object] = {"preempted_tokens": None, "waste": None}
    tells = [
        name
        for name, told in (("its size", all(sizes)), ("the share in use", None not in shares))
        if told
    ]
    kinds = ", ".join(dict.fromkeys(vitals.kind for _, vitals in there))
    pool["note"] = (
        f"{kinds} tells {' and '.join(tells) or 'nothing'} of its KV pool; "
        "who holds it, and what its prefix cache holds, is not told"
    )
    if all(sizes):
        pool["block_tokens"] = there[0][0].kv_block_size
    if all(sizes) and None not in shares:
        used = round(sum(share * size for share, size in zip(shares, sizes) if share is not None))
        pool |= {"used": used, "free": sum(sizes) - used}
    told = [count for count in preemptions if count is not None]
    if told:
        pool["preemptions"] = int(sum(told))
    return pool
