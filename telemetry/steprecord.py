"""One engine step, told once: what was done, how long each part took, and why slots stood empty."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

import msgspec

from surgetank.telemetry.vocabulary import (
    OomAction,
    OomSource,
    Operator,
    PreemptionKind,
    PreemptionReason,
    Priority,
)

ByClass = tuple[int, int, int, int]  # indexed by Priority
# What the places of the record's longer tuples count.
PREEMPTIONS = tuple(product(PreemptionKind, PreemptionReason, Priority))
OOMS = tuple(product(OomSource, OomAction))
OPERATORS = tuple(Operator)

EventT = TypeVar("EventT")


def tally(places: tuple[EventT, ...], events: Sequence[EventT]) -> tuple[int, ...]:
    """How often each of `places` is among `events`."""
    if not events:
        return (0,) * len(places)
    counts = Counter(events)
    return tuple(counts[place] for place in places)


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one step did and why: the engine's single source of truth about itself.

    Durations in seconds, `at` on the engine's monotonic clock. Slot counts sum to max_num_seqs.
    """

    step: int
    at: float  # when the step ended
    drain: float
    schedule: float
    forward: float
    sample: float
    emit: float  # of the step before: this one's cannot be in its own message
    idle: float  # waited with nothing to do, before this step
    prefill_tokens: int
    decode_tokens: int
    prefill_seqs: int
    decode_seqs: int
    token_budget: int
    slots_filled: int
    slots_no_work: int
    slots_blocked_kv: int
    slots_blocked_token_budget: int
    slots_blocked_limit: int
    slots_blocked_other: int
    waiting: ByClass  # sequences by priority class, after the step
    running: ByClass
    contended: bool  # the step began with a queue
    kv_used: int  # blocks held by live sequences
    kv_cached: int  # blocks held only by the prefix cache
    kv_free: int
    kv_stored_tokens: int  # tokens in used blocks, shared blocks counted once
    kv_resident_tokens: int  # K of the step model: context read by this step's attention
    prefix_hit_tokens: int
    prefix_miss_tokens: int
    prefill_backlog: int  # prompt tokens accepted and not yet computed
    kv_held: ByClass = (0, 0, 0, 0)  # blocks in the tables of each class, shared ones in each
    preemptions: tuple[int, ...] = tally(PREEMPTIONS, ())
    preempted_tokens: int = 0  # stored by those that will recompute: lost work
    swapped_tokens: int = 0  # stored by those that went to the swap pool: kept work
    recomputed_tokens: int = 0  # stored before, found nowhere on the way back: to be done again
    swapped_in_bytes: int = 0
    swapped_out_bytes: int = 0
    allocation_failures: int = 0
    ooms: tuple[int, ...] = tally(OOMS, ())
    prefill_budget: int = 0  # prompt tokens that the share and the time per step had room for
    predicted: float = 0.0  # seconds, by the step model before the step; 0: not fitted yet
    kv_swapped: int = 0  # blocks of the swap pool in use
    kv_faults: int = 0  # found by integrity checks since the record before
    kv_limit: int = 0  # blocks that live sequences may hold; 0: all that there are
    others: int = 0  # sequences in the engine that this sidecar did not send, as far as is known
    operators: tuple[float, ...] = (0.0,) * len(OPERATORS)  # all 0: this step was no sample

    @property
    def preempted_recompute(self) -> int:
        """Sequences put back that will compute again what they had stored."""
        return _count(self.preemptions, PreemptionKind.RECOMPUTE)

    @property
    def preempted_swap(self) -> int:
        """Sequences put back whose KV waits in the swap pool."""
        return _count(self.preemptions, PreemptionKind.SWAP)


def _count(preemptions: tuple[int, ...], kind: PreemptionKind) -> int:
    return sum(count for count, place in zip(preemptions, PREEMPTIONS) if place[0] is kind)
