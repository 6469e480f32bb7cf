"""The engine's only writer of metrics: each step record becomes its counts and gauges."""

from collections.abc import Callable
from dataclasses import dataclass

from surgetank.telemetry.metricspec import PRIORITIES
from surgetank.telemetry.registry import Registry, Sample
from surgetank.telemetry.stepmodel import StepFit, step_seconds
from surgetank.telemetry.steprecord import OOMS, OPERATORS, PREEMPTIONS, StepRecord
from surgetank.telemetry.vocabulary import PreemptionKind, SlotState, StepKind


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """What does not change while an engine runs."""

    kv_block_size: int  # tokens
    kv_blocks: int
    parameters: int = 0
    weight_bytes: int = 0
    kv_bytes_per_token: int = 0


class EngineRecorder:
    """Writes the batch, memory and compute metrics. step() belongs to the step loop's thread.

    Gauges show the last step's record; before the first step, an empty engine.
    """

    def __init__(self, registry: Registry, sizes: EngineSizes) -> None:
        self.registry = registry
        self._sizes = sizes
        self._last: StepRecord | None = None
        counter = registry.counter
        self._steps = counter("batch_steps_total")
        self._slots = {state: counter("batch_slot_steps_total").at(state) for state in SlotState}
        self._seqs = counter("batch_scheduled_seqs_total").at()
        self._capacity = counter("batch_seq_capacity_total").at()
        self._contended_seqs = counter("batch_contended_scheduled_seqs_total").at()
        self._contended_capacity = counter("batch_contended_seq_capacity_total").at()
        self._prefill_tokens = counter("batch_scheduled_tokens_total").at("prefill")
        self._decode_tokens = counter("batch_scheduled_tokens_total").at("decode")
        self._token_budget = counter("batch_token_budget_total").at()
        preemptions = counter("batch_preemptions_total")
        self._preemptions = [
            preemptions.at(kind, reason, PRIORITIES[priority])
            for kind, reason, priority in PREEMPTIONS
        ]
        preempted_tokens = counter("batch_preempted_tokens_total")
        self._lost_tokens = preempted_tokens.at(PreemptionKind.RECOMPUTE)
        self._kept_tokens = preempted_tokens.at(PreemptionKind.SWAP)
        self._recomputed_tokens = counter("batch_recomputed_tokens_total").at()
        self._swap_in = counter("batch_swap_bytes_total").at("in")
        self._swap_out = counter("batch_swap_bytes_total").at("out")
        self._allocation_failures = counter("memory_kv_allocation_failures_total").at()
        self._prefix_hits = counter("memory_prefix_tokens_total").at("hit")
        self._prefix_misses = counter("memory_prefix_tokens_total").at("miss")
        self._kv_faults = counter("memory_kv_faults_total").at()
        self._ooms = [counter("memory_oom_total").at(*place) for place in OOMS]
        self._stages = counter("compute_loop_seconds_total")
        self._step_seconds = registry.histogram("compute_step_seconds")
        operators = counter("compute_operator_seconds_total")
        self._operators = [operators.at(operator) for operator in OPERATORS]
        self._samples = counter("compute_sampled_steps_total").at()
        self._flops = counter("compute_estimated_flops_total").at()
        self._bytes_read = counter("compute_estimated_bytes_total").at("read")
        self._bytes_written = counter("compute_estimated_bytes_total").at("written")
        self._show_gauges()

    def show_fit(self, fit: StepFit) -> None:
        """Export the engine's own step model: absent until it is believed."""

        def terms() -> list[Sample]:
            model = fit.model
            if model is None:
                return []
            seconds = {
                "step": model.t0,
                "prefill_token": model.a,
                "decode_seq": model.b,
                "context_token": model.c,
            }
            return [({"term": term}, value) for term, value in seconds.items()]

        def error() -> list[Sample]:
            return [] if fit.model is None else [({}, fit.error)]

        self.registry.source("compute_step_model_seconds", terms)
        self.registry.source("compute_step_model_error_ratio", error)

    def rested(self, seconds: float) -> None:
        """The loop had nothing to do; told as it passes, for an idle engine has no records."""
        self._stages.at("idle").value += seconds

    def step(self, record: StepRecord) -> None:
        """Tell one step; each record exactly once, in order."""
        self._count_batch(record)
        self._count_memory(record)
        self._count_work(record)
        self._count_time(record)
        self._last = record

    def _count_batch(self, record: StepRecord) -> None:
        slots = slots_of(record)
        seqs = record.prefill_seqs + record.decode_seqs
        capacity = sum(slots.values())
        for state, count in slots.items():
            self._slots[state].value += count
        self._seqs.value += seqs
        self._capacity.value += capacity
        if record.contended:
            self._contended_seqs.value += seqs
            self._contended_capacity.value += capacity
        self._prefill_tokens.value += record.prefill_tokens
        self._decode_tokens.value += record.decode_tokens
        self._token_budget.value += record.token_budget
        if any(record.preemptions):
            for counter, count in zip(self._preemptions, record.preemptions):
                counter.value += count
        self._lost_tokens.value += record.preempted_tokens
        self._kept_tokens.value += record.swapped_tokens
        self._recomputed_tokens.value += record.recomputed_tokens
        self._swap_in.value += record.swapped_in_bytes
        self._swap_out.value += record.swapped_out_bytes

    def _count_memory(self, record: StepRecord) -> None:
        self._allocation_failures.value += record.allocation_failures
        self._kv_faults.value += record.kv_faults
        self._prefix_hits.value += record.prefix_hit_tokens
        self._prefix_misses.value += record.prefix_miss_tokens
        if any(record.ooms):
            for counter, count in zip(self._ooms, record.ooms):
                counter.value += count

    def _count_work(self, record: StepRecord) -> None:
        """The classic estimate of 2 N operations a token (Kaplan et al., arXiv 2001.08361)."""
        sizes, tokens = self._sizes, record.prefill_tokens + record.decode_tokens
        if tokens:
            self._flops.value += 2 * sizes.parameters * tokens
            context = record.kv_resident_tokens * sizes.kv_bytes_per_token
            self._bytes_read.value += sizes.weight_bytes + context
            self._bytes_written.value += tokens * sizes.kv_bytes_per_token
        if any(record.operators):
            self._samples.value += 1
            for counter, seconds in zip(self._operators, record.operators):
                counter.value += seconds

    def _count_time(self, record: StepRecord) -> None:
        """What the record leaves unexplained since the step before is ours: postprocess."""
        postprocess = record.sample + record.emit
        busy = step_seconds(record)
        if self._last is not None:
            wall = record.at - self._last.at
            postprocess += max(0.0, wall - busy - record.idle)
        self._stages.at("admit").value += record.drain
        self._stages.at("schedule").value += record.schedule
        self._stages.at("forward").value += record.forward
        self._stages.at("postprocess").value += postprocess
        kind = step_kind(record)
        if kind is not None:
            self._steps.at(kind).value += 1
            self._step_seconds.at(kind).observe(busy)

    def _show_gauges(self) -> None:
        sizes, source = self._sizes, self.registry.source
        nobody = _by_priority((0, 0, 0, 0))
        nothing: list[Sample] = [({}, 0)]

        def show(
            gauge: str, of: Callable[[StepRecord], list[Sample]], before: list[Sample]
        ) -> None:
            source(gauge, lambda: before if (last := self._last) is None else of(last))

        source("memory_kv_block_size_tokens", lambda: [({}, sizes.kv_block_size)])
        show("batch_running_requests", lambda last: _by_priority(last.running), nobody)
        show("batch_waiting_requests", lambda last: _by_priority(last.waiting), nobody)
        show("batch_prefill_backlog_tokens", lambda last: [({}, last.prefill_backlog)], nothing)
        show("memory_kv_stored_tokens", lambda last: [({}, last.kv_stored_tokens)], nothing)
        show("memory_kv_swap_blocks", lambda last: [({}, last.kv_swapped)], nothing)
        show(
            "memory_kv_blocks",
            lambda last: _kv_blocks(last.kv_used, last.kv_cached, last.kv_free),
            _kv_blocks(0, 0, sizes.kv_blocks),
        )


def step_kind(record: StepRecord) -> StepKind | None:
    """What a step worked on; None when it scheduled nothing."""
    if record.prefill_seqs and record.decode_seqs:
        return StepKind.MIXED
    if record.prefill_seqs:
        return StepKind.PREFILL
    return StepKind.DECODE if record.decode_seqs else None


def slots_of(record: StepRecord) -> dict[SlotState, int]:
    """The step's slots by what they were."""
    return {
        SlotState.FILLED: record.slots_filled,
        SlotState.NO_WORK: record.slots_no_work,
        SlotState.BLOCKED_KV: record.slots_blocked_kv,
        SlotState.BLOCKED_TOKEN_BUDGET: record.slots_blocked_token_budget,
        SlotState.BLOCKED_LIMIT: record.slots_blocked_limit,
        SlotState.BLOCKED_OTHER: record.slots_blocked_other,
    }


def _by_priority(counts: tuple[int, int, int, int]) -> list[Sample]:
    return [({"priority": label}, count) for label, count in zip(PRIORITIES, counts)]


def _kv_blocks(used: int, cached: int, free: int) -> list[Sample]:
    states = {"used": used, "cached": cached, "free": free}
    return [({"state": state}, blocks) for state, blocks in states.items()]
