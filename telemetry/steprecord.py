"""One engine step, told once: what was done, how long each part took, and why slots stood empty."""

import msgspec


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
    waiting: tuple[int, int, int, int]  # sequences by priority class, after the step
    running: tuple[int, int, int, int]
    contended: bool  # the step began with a queue
    kv_used: int  # blocks held by live sequences
    kv_cached: int  # blocks held only by the prefix cache
    kv_free: int
    kv_stored_tokens: int  # tokens in used blocks, shared blocks counted once
    kv_resident_tokens: int  # K of the step model: context read by this step's attention
    prefix_hit_tokens: int
    prefix_miss_tokens: int
    prefill_backlog: int  # prompt tokens accepted and not yet computed
    preempted_recompute: int = 0
    preempted_swap: int = 0
    preempted_tokens: int = 0
    swapped_in_bytes: int = 0
    swapped_out_bytes: int = 0
    allocation_failures: int = 0
