"""What a step record says, worked out from the plan and the state around it."""

from collections.abc import Iterable
from dataclasses import dataclass

from surgetank.engine.plan import Budget, Plan, View
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.steprecord import OOMS, PREEMPTIONS, ByClass, StepRecord, tally
from surgetank.telemetry.vocabulary import (
    OomAction,
    OomSource,
    PreemptionReason,
    Priority,
    SlotState,
)


@dataclass(slots=True)
class Times:
    """Seconds of a step's parts, as StepRecord names them."""

    drain: float = 0.0
    idle: float = 0.0
    emit: float = 0.0
    schedule: float = 0.0
    forward: float = 0.0
    sample: float = 0.0


class Stopwatch:
    """Seconds between one lap and the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()

    def lap(self) -> float:
        now = self._clock.monotonic()
        passed, self._last = now - self._last, now
        return passed


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What only the moment after scheduling knows, before sequences grow, fork and leave."""

    slots: dict[SlotState, int]
    prefix_hits: int
    prefix_misses: int
    recomputed: int
    contended: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong since the last record."""

    ooms: list[tuple[OomSource, OomAction]]
    faults: int


def slot_states(plan: Plan, view: View, slots: int) -> dict[SlotState, int]:
    """The step's slots by what they were. Asked of `view` once the plan's moves are made.

    A slot that nobody waits for has no work; of the others empty, all have the one reason that
    stopped the line, except those of running sequences that got no block, or that the token
    budget left out.
    """
    filled = _width(sequence for sequence, _ in plan.chunks)
    held_back = _width(view.running) - filled
    empty = max(0, slots - filled - held_back)
    wanted = min(empty, _width(view.waiting))
    states = dict.fromkeys(SlotState, 0)
    states[SlotState.FILLED] = filled
    states[SlotState.BLOCKED_KV] = starved = min(plan.starved, held_back)
    states[SlotState.BLOCKED_TOKEN_BUDGET] = held_back - starved
    states[SlotState.NO_WORK] = empty - wanted
    states[plan.blocked_by] += wanted
    return states


def record(
    step: int,
    at: float,
    plan: Plan,
    scheduled: Scheduled,
    budget: Budget,
    view: View,
    times: Times,
    trouble: Trouble,
) -> StepRecord:
    """The finished step, told once."""
    pool = view.kv.pool
    for_blocks = sum(each.reason is PreemptionReason.KV for each in plan.preempted)
    load = (plan.prefill_tokens, len(plan.decode), plan.context)
    return StepRecord(
        step=step,
        at=at,
        drain=times.drain,
        schedule=times.schedule,
        forward=times.forward,
        sample=times.sample,
        emit=times.emit,
        idle=times.idle,
        prefill_tokens=plan.prefill_tokens,
        decode_tokens=len(plan.decode),
        prefill_seqs=len(plan.prefill),
        decode_seqs=len(plan.decode),
        token_budget=budget.tokens,
        slots_filled=scheduled.slots[SlotState.FILLED],
        slots_no_work=scheduled.slots[SlotState.NO_WORK],
        slots_blocked_kv=scheduled.slots[SlotState.BLOCKED_KV],
        slots_blocked_token_budget=scheduled.slots[SlotState.BLOCKED_TOKEN_BUDGET],
        slots_blocked_limit=scheduled.slots[SlotState.BLOCKED_LIMIT],
        slots_blocked_other=scheduled.slots[SlotState.BLOCKED_OTHER],
        waiting=_by_class(view.waiting),
        running=_by_class(view.running),
        contended=scheduled.contended,
        kv_used=pool.used,
        kv_cached=pool.cached,
        kv_free=pool.free,
        kv_limit=pool.limit,
        kv_stored_tokens=pool.stored_tokens,
        kv_resident_tokens=plan.context,
        prefix_hit_tokens=scheduled.prefix_hits,
        prefix_miss_tokens=scheduled.prefix_misses,
        prefill_backlog=_backlog(view),
        kv_held=_held(view.running),
        preemptions=tally(
            PREEMPTIONS,
            [(each.kind, each.reason, each.sequence.priority) for each in plan.preempted],
        ),
        preempted_tokens=plan.preempted_tokens,
        swapped_tokens=sum(each.tokens for each in plan.preempted) - plan.preempted_tokens,
        recomputed_tokens=scheduled.recomputed,
        swapped_in_bytes=len(plan.swaps_in) * view.kv.block_bytes,
        swapped_out_bytes=len(plan.swaps_out) * view.kv.block_bytes,
        allocation_failures=for_blocks + plan.starved,
        ooms=tally(OOMS, trouble.ooms),
        prefill_budget=plan.prefill_tokens + max(0, plan.room(budget)),
        predicted=budget.model.seconds(*load),
        kv_swapped=view.kv.host.used,
        kv_faults=trouble.faults,
    )


def _width(sequences: Iterable[Sequence]) -> int:
    return sum(sequence.width for sequence in sequences)


def _by_class(sequences: Iterable[Sequence]) -> ByClass:
    counts = [0] * len(Priority)
    for sequence in sequences:
        counts[sequence.priority] += sequence.width
    critical, default, batch, sheddable = counts
    return critical, default, batch, sheddable


def _held(running: Iterable[Sequence]) -> ByClass:
    counts = [0] * len(Priority)
    for sequence in running:
        counts[sequence.priority] += len(sequence.table.blocks)
    critical, default, batch, sheddable = counts
    return critical, default, batch, sheddable


def _backlog(view: View) -> int:
    """Prompt tokens still to be read."""
    running = sum(each.remaining for each in view.running if not each.decoding)
    return running + sum(each.remaining - each.table.host_stored for each in view.waiting)
