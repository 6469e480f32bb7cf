"""What /health answers: live asks nothing but progress, ready asks for room.

A frozen engine is not live, so that whoever watches restarts it; a full queue is live, not ready,
so that a balancer sends its next request elsewhere and nothing is restarted for being busy.
"""

from surgetank.admission.doors.http.routes import Health
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot


def judge(desk: DeskSnapshot, hung_after: float) -> Health:
    """`hung_after`: seconds without a step, with work in the engine, that count as frozen."""
    stalled = desk.stalled_for
    if desk.model is not None and stalled is not None and stalled > hung_after:
        return Health(
            live=False, ready=False, detail=f"the engine made no step for {stalled:.0f} s"
        )
    if desk.draining:
        return Health(live=True, ready=False, detail="draining")
    if desk.model is None:
        missing = "no engine takes requests" if desk.there else "the engine is not there"
        return Health(live=True, ready=False, detail=missing)
    for limit in desk.limits:
        if limit.name in (Limit.QUEUE_REQUESTS, Limit.QUEUE_TOKENS):
            used = desk.limit_usage[limit.name.value]
            if used >= limit.current:
                full = f"the queue is full: {limit.name.value} {used:g} of {limit.current:g}"
                return Health(live=True, ready=False, detail=full)
    return Health(live=True, ready=True)
