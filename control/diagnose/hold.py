"""What one look says of why work waits: compute, memory, a limit of ours, or the way in between."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import takewhile

from surgetank.admission.limits import Limit
from surgetank.admission.room import Held
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.diagnose.look import Look
from surgetank.telemetry.stepmodel import step_seconds
from surgetank.telemetry.steprecord import StepRecord

SILENT = 1.0  # seconds without a step, beyond what a step takes, that are a standstill
SILENT_COLD = 5.0  # the same before it is known what a step takes
SILENT_LOOKS = 3.0  # the same where it is only seen by looking now and then
_BUSY_LOOKS = 3
SHORT = 0.5  # of the TPOT target: a step below it could be larger


class Cause(StrEnum):
    """Why the next request does not go into the batch."""

    NONE = "none"  # it does
    STALL = "stall"  # nothing moves in the engine
    COMPUTE = "compute"
    MEMORY = "memory"
    LIMIT = "limit"
    TOKEN_BUDGET = "token_budget"  # steps end early for want of tokens that they may compute
    DISPATCH = "dispatch"  # there is room, and nothing says why it is not used


def waits(desk: DeskSnapshot) -> bool:
    """Whether somebody waits, at the gate or in the engine."""
    step = desk.last_step
    return desk.queue_requests > 0 or (
        desk.dispatched > 0 and step is not None and sum(step.waiting) > 0
    )


def standstill(desk: DeskSnapshot) -> float | None:
    """Seconds that the engine has stood with work in it, where that is too long."""
    silent, wait = desk.stalled_for or 0.0, desk.laws.wait
    stands = silent > SILENT_COLD if wait is None else wait.age > SILENT
    return silent if stands else None


def frozen(looks: Sequence[Look]) -> float | None:
    """The same where impatient clients hide it: what they take back leaves no work in the engine to
    be silent about. So: no step over many looks, at several of which it had some."""
    newest = looks[-1].desk
    step = None if newest.last_step is None else newest.last_step.step
    same = list(takewhile(lambda look: _step(look) == step, reversed(looks)))
    busy = sum(look.desk.dispatched > 0 for look in same)
    silent = newest.at - same[-1].desk.at
    return silent if silent > SILENT_LOOKS and busy >= _BUSY_LOOKS else None


def _step(look: Look) -> int | None:
    return None if look.desk.last_step is None else look.desk.last_step.step


def lowered(desk: DeskSnapshot, limit: Limit) -> bool:
    """Whether an operator's value holds back more than what would hold without it."""
    view = desk.view(limit)
    if view.override is None:
        return False
    if limit is Limit.BROWNOUT_LEVEL:
        return view.current > view.base
    return view.current < min(view.base, view.maximum)


def cause_of(look: Look) -> Cause:
    """The one binding reason at this look."""
    desk, step = look.desk, look.desk.last_step
    if not desk.backend_up or standstill(desk):
        return Cause.STALL
    match look.held:
        case Held.IN_FLIGHT_SEQS | Held.MAX_NUM_SEQS:
            view = desk.view(Limit(look.held))
            return Cause.LIMIT if view.current < view.maximum else Cause.COMPUTE
        case Held.KV:
            ours = lowered(desk, Limit.KV_RESERVE) or lowered(desk, Limit.KV_RESERVE_LOW)
            return Cause.LIMIT if ours else Cause.MEMORY
        case Held.TPOT | Held.HEADROOM:
            return Cause.COMPUTE
        case Held.PREFILL:
            return _by_budget(desk, step)
    return _in_engine(desk, step)


def _in_engine(desk: DeskSnapshot, step: StepRecord | None) -> Cause:
    """The gate keeps nothing back: what the engine says of those that it has itself."""
    if step is not None and desk.dispatched and sum(step.waiting):
        if step.slots_blocked_kv:
            return Cause.MEMORY
        if step.slots_blocked_limit:
            view = desk.view(Limit.MAX_NUM_SEQS)
            return Cause.LIMIT if view.current < view.maximum else Cause.COMPUTE
        if step.slots_blocked_token_budget:
            return _by_budget(desk, step)
        if not step.slots_no_work:
            return Cause.COMPUTE
    return Cause.DISPATCH if desk.queue_requests else Cause.NONE


def _by_budget(desk: DeskSnapshot, step: StepRecord | None) -> Cause:
    """Prompts wait to be read: for the device, unless its steps end long before they must."""
    short = step is not None and step_seconds(step) < SHORT * desk.tpot_target
    return Cause.TOKEN_BUDGET if short else Cause.COMPUTE
