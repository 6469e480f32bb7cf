"""The metrics that the engine exports: batch, memory and compute, all from its step records."""

from surgetank.telemetry.buckets import STEP
from surgetank.telemetry.metricspec import (
    PRIORITY,
    STEP_KIND,
    Declare,
    Label,
    Layer,
    MetricSpec,
    Openness,
    Process,
    closed,
)
from surgetank.telemetry.vocabulary import (
    GpuSignal,
    GpuThrottle,
    OomAction,
    OomSource,
    Operator,
    PreemptionKind,
    PreemptionReason,
    SlotState,
)

_batch = Declare(Process.ENGINE, Layer.BATCH)
_memory = Declare(Process.ENGINE, Layer.MEMORY)
_compute = Declare(Process.ENGINE, Layer.COMPUTE)
_PREEMPTION = closed("kind", *PreemptionKind)
_DEVICE = Label("device", (), Openness.OURS)

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
        "batch_preemptions_total",
        "Running sequences put back, by what became of their KV, and why.",
        _PREEMPTION,
        closed("reason", *PreemptionReason),
        PRIORITY,
    ),
    _batch.counter(
        "batch_preempted_tokens_total",
        "Tokens whose KV left the pool by preemption, to be computed again or copied back.",
        _PREEMPTION,
        unit="tokens",
    ),
    _batch.counter(
        "batch_recomputed_tokens_total",
        "Tokens computed again because preemption had thrown them away: the waste itself.",
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
    _memory.gauge("memory_kv_swap_blocks", "Blocks of the swap pool in use.", unit="blocks"),
    _memory.counter(
        "memory_kv_faults_total", "Faults that integrity checks found in the KV cache's books."
    ),
    _memory.counter(
        "memory_oom_total",
        "Times that memory ran out: which, and what was done about it.",
        closed("source", *OomSource),
        closed("action", *OomAction),
    ),
    _memory.gauge(
        "memory_device_bytes",
        "Memory of the process (cpu) and of its accelerator, as far as it can be known.",
        _DEVICE,
        closed("kind", "resident", "allocated", "reserved", "inactive_split", "total"),
        unit="bytes",
    ),
    _memory.source_counter(
        "memory_alloc_retries_total",
        "Allocations that torch's GPU allocator tried again after it had flushed its cache.",
        _DEVICE,
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
    _compute.counter(
        "compute_operator_seconds_total",
        "Where forward pass and sampling spend their time, over the sampled steps alone.",
        closed("operator", *Operator),
        unit="seconds",
    ),
    _compute.counter("compute_sampled_steps_total", "Steps whose operators were timed."),
    _compute.counter(
        "compute_estimated_flops_total",
        "Two per weight and token computed; attention over the context is not in it.",
    ),
    _compute.counter(
        "compute_estimated_bytes_total",
        "The least a step moves: each weight and the context's KV read, new KV written.",
        closed("direction", "read", "written"),
        unit="bytes",
    ),
    _compute.gauge(
        "compute_step_model_seconds",
        "The engine's own step model; per step, prompt token, decoding sequence, context token.",
        closed("term", "step", "prefill_token", "decode_seq", "context_token"),
        unit="seconds",
    ),
    _compute.gauge(
        "compute_step_model_error_ratio",
        "Mean relative error of that model, of late.",
    ),
)

GPU_METRICS: tuple[MetricSpec, ...] = (
    _compute.gauge(
        "compute_gpu_up",
        "1 while the driver answers for the engine's GPU, else 0; absent where none is asked.",
        _DEVICE,
    ),
    _compute.gauge(
        "compute_gpu_ratio",
        "How busy the GPU was in the last second; absent where the hardware does not tell.",
        _DEVICE,
        closed("signal", *GpuSignal),
    ),
    _compute.source_counter(
        "compute_gpu_throttle_seconds_total",
        "How long the GPU's clocks were held down, by reason; several can hold at once.",
        _DEVICE,
        closed("reason", *GpuThrottle),
        unit="seconds",
    ),
    _compute.source_counter(
        "compute_xid_total",
        "Faults that the GPU reported (XID); the engine's log has their numbers.",
        _DEVICE,
    ),
    _compute.source_counter(
        "compute_gpu_driver_losses_total",
        "Times that the GPU's driver did not answer and had to be opened again.",
    ),
)

ENGINE_METRICS = BATCH_METRICS + MEMORY_METRICS + COMPUTE_METRICS + GPU_METRICS
