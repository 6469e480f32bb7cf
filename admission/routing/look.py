"""One engine as it can be seen from outside, at one moment."""

from math import inf

from surgetank.admission.laws import Laws
from surgetank.admission.routing.choice import Choice
from surgetank.admission.routing.side import EngineSide, SideState
from surgetank.admission.routing.sides import Sides
from surgetank.admission.snapshot import EngineLook


def look_at(side: EngineSide, sides: Sides, laws: Laws, now: float) -> EngineLook:
    """After sides.look(now)."""
    rates, state, vitals = side.view.rates, side.state(now), side.vitals()
    card = None if state is SideState.DOWN else side.card
    probe = laws.average(now)
    return EngineLook(
        name=side.name,
        url=vitals.url,
        role=side.role,
        state=state,
        since=side.since(state),
        back_at=side.standing.back_at if state is SideState.EJECTED else None,
        card=card,
        vitals=vitals,
        last_step=side.engine.last_step,
        stalled_for=side.engine.stalled_for(now),
        dispatched=side.ledger.permits,
        dispatched_seqs=side.ledger.seqs,
        slots=0.0 if card is None else laws.room.slots(side),
        learned_slots=None if side.most == inf else side.most,
        unread=side.backlog.tokens,
        others=side.others,
        kv_blocks=side.kv_blocks,
        kv_promised=side.ledger.kv_blocks / side.kv_blocks if card and side.kv_blocks else None,
        kv_used=laws.room.kv_share(side) if laws.room.sees_kv(side) else None,
        drain=None if rates is None else rates.drain,
        model=None if rates is None else rates.model,
        model_error=side.view.fit.error,
        wait=None if card is None else Choice(sides).wait(side, probe.prompt_tokens, now),
        largest_batch=None if rates is None else laws.room.largest_batch(side, probe),
        faults=side.standing.faults,
        ejections=side.standing.ejections,
        routed=dict(side.routed),
        moved_away=side.moved_away,
        restarts=side.restarts or 0,
    )
