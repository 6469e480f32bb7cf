"""The metrics that the engine exports: batch, memory and compute, all from its step records."""

from surgetank.telemetry.buckets import STEP
from surgetank.telemetry.metricspec import (
    PRIORITY,
    STEP_KIND,
    Declare,
    Layer,
    MetricSpec,
    Process,
    closed,
)
from surgetank.telemetry.vocabulary import SlotState

_batch = Declare(Process.ENGINE, Layer.BATCH)
_memory = Declare(Process.ENGINE, Layer.MEMORY)
_compute = Declare(Process.ENGINE, Layer.COMPUTE)
_PREEMPTION = closed("kind", "recompute", "swap")

BATCH_METRICS: tuple[MetricSpec, ...] = (
    _batch.counter("batch_steps_total", "Steps that computed at least one sequence.", STEP_KIND),
    _batch.gauge("batch_running_requests", "Sequences in the running batch.", PRIORITY),
    _batch.gauge(
        "batch_waiting_requests", "Sequences the engine holds and does not run yet.", PRIORITY
    ),
    _batch.counter(
        "batch_slot_steps_total",
        "Each step adds max_num_seqs slots: filled, or empty for the one binding reason.",
        closed("state", *SlotState),
    ),
    _batch.counter("batch_scheduled_seqs_total", "Sequences scheduled, summed over steps."),
    _batch.counter(
        "batch_seq_capacity_total", "Sequences that could have been scheduled, over the same steps."
    ),
    _batch.counter(
        "batch_contended_scheduled_seqs_total",
        "Sequences scheduled, over the steps that began with a queue.",
    ),
    _batch.counter(
        "batch_contended_seq_capacity_total",
        "Sequences that could have been scheduled, over the steps that began with a queue.",
    ),
    _batch.counter(
        "batch_scheduled_tokens_total",
        "Tokens computed, by what they were computed for.",
        closed("phase", "prefill", "decode"),
    ),
    _batch.counter("batch_token_budget_total", "Tokens that could have been computed."),
    _batch.gauge(
        "batch_prefill_backlog_tokens",
        "Prompt tokens accepted and not yet computed.",
        unit="tokens",
    ),
    _batch.counter(
        "batch_preemptions_total", "Running sequences put back for want of KV blocks.", _PREEMPTION
    ),
    _batch.counter(
        "batch_preempted_tokens_total",
        "Tokens whose KV was given up by preemption, to be computed or copied again.",
        unit="tokens",
    ),
    _batch.counter(
        "batch_swap_bytes_total",
        "KV bytes copied to and from the swap pool.",
        closed("direction", "in", "out"),
        unit="bytes",
    ),
)

MEMORY_METRICS: tuple[MetricSpec, ...] = (
    _memory.gauge(
        "memory_kv_blocks",
        "KV blocks held by live sequences, held only by the prefix cache, and free.",
        closed("state", "used", "cached", "free"),
        unit="blocks",
    ),
    _memory.gauge(
        "memory_kv_block_size_tokens", "Tokens that one KV block can hold.", unit="tokens"
    ),
    _memory.gauge(
        "memory_kv_stored_tokens",
        "Tokens in used blocks, shared ones once; fragmentation = 1 - stored / (used * size).",
        unit="tokens",
    ),
    _memory.counter(
        "memory_kv_allocation_failures_total", "Times a sequence needed a block and none was free."
    ),
    _memory.counter(
        "memory_prefix_tokens_total",
        "Prompt tokens looked up in the prefix cache.",
        closed("result", "hit", "miss"),
        unit="tokens",
    ),
)

COMPUTE_METRICS: tuple[MetricSpec, ...] = (
    _compute.seconds(
        "compute_step_seconds",
        "One turn of the step loop without its idle time.",
        STEP_KIND,
        buckets=STEP,
        slo="tpot",
    ),
    _compute.counter(
        "compute_loop_seconds_total",
        "Where the step loop's time goes; the stages exclude each other and sum to wall time.",
        closed("stage", "admit", "schedule", "forward", "postprocess", "idle"),
        unit="seconds",
    ),
)

ENGINE_METRICS = BATCH_METRICS + MEMORY_METRICS + COMPUTE_METRICS
