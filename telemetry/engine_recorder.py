"""The engine's only writer of metrics: each step record becomes its counts and gauges."""

from collections.abc import Callable

from surgetank.telemetry.metricspec import PRIORITIES
from surgetank.telemetry.registry import Registry, Sample
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import SlotState, StepKind


class EngineRecorder:
    """Writes the batch, memory and compute metrics. step() belongs to the step loop's thread.

    Gauges show the last step's record; before the first step they are absent.
    """

    def __init__(self, registry: Registry, kv_block_size: int) -> None:
        """`kv_block_size` in tokens."""
        self.registry = registry
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
        self._recomputed = counter("batch_preemptions_total").at("recompute")
        self._swapped = counter("batch_preemptions_total").at("swap")
        self._preempted_tokens = counter("batch_preempted_tokens_total").at()
        self._swap_in = counter("batch_swap_bytes_total").at("in")
        self._swap_out = counter("batch_swap_bytes_total").at("out")
        self._allocation_failures = counter("memory_kv_allocation_failures_total").at()
        self._prefix_hits = counter("memory_prefix_tokens_total").at("hit")
        self._prefix_misses = counter("memory_prefix_tokens_total").at("miss")
        self._stages = counter("compute_loop_seconds_total")
        self._step_seconds = registry.histogram("compute_step_seconds")
        registry.source("memory_kv_block_size_tokens", lambda: [({}, kv_block_size)])
        self._show("batch_running_requests", lambda last: _by_priority(last.running))
        self._show("batch_waiting_requests", lambda last: _by_priority(last.waiting))
        self._show("batch_prefill_backlog_tokens", lambda last: [({}, last.prefill_backlog)])
        self._show("memory_kv_stored_tokens", lambda last: [({}, last.kv_stored_tokens)])
        self._show("memory_kv_blocks", _kv_blocks)

    def step(self, record: StepRecord) -> None:
        """Tell one step; each record exactly once, in order."""
        self._count_batch(record)
        self._count_memory(record)
        self._count_time(record)
        self._last = record

    def _count_batch(self, record: StepRecord) -> None:
        slots = _slots(record)
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
        self._recomputed.value += record.preempted_recompute
        self._swapped.value += record.preempted_swap
        self._preempted_tokens.value += record.preempted_tokens
        self._swap_in.value += record.swapped_in_bytes
        self._swap_out.value += record.swapped_out_bytes

    def _count_memory(self, record: StepRecord) -> None:
        self._allocation_failures.value += record.allocation_failures
        self._prefix_hits.value += record.prefix_hit_tokens
        self._prefix_misses.value += record.prefix_miss_tokens

    def _count_time(self, record: StepRecord) -> None:
        """What the record leaves unexplained since the step before is ours: postprocess."""
        postprocess = record.sample + record.emit
        busy = record.drain + record.schedule + record.forward + postprocess
        if self._last is not None:
            wall = record.at - self._last.at
            postprocess += max(0.0, wall - busy - record.idle)
        self._stages.at("admit").value += record.drain
        self._stages.at("schedule").value += record.schedule
        self._stages.at("forward").value += record.forward
        self._stages.at("postprocess").value += postprocess
        self._stages.at("idle").value += record.idle
        kind = step_kind(record)
        if kind is not None:
            self._steps.at(kind).value += 1
            self._step_seconds.at(kind).observe(busy)

    def _show(self, gauge: str, of: Callable[[StepRecord], list[Sample]]) -> None:
        """Export a gauge that reads the last record."""

        def read() -> list[Sample]:
            last = self._last
            return [] if last is None else of(last)

        self.registry.source(gauge, read)


def step_kind(record: StepRecord) -> StepKind | None:
    """What a step worked on; None when it scheduled nothing."""
    if record.prefill_seqs and record.decode_seqs:
        return StepKind.MIXED
    if record.prefill_seqs:
        return StepKind.PREFILL
    return StepKind.DECODE if record.decode_seqs else None


def _slots(record: StepRecord) -> dict[SlotState, int]:
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


def _kv_blocks(last: StepRecord) -> list[Sample]:
    states = {"used": last.kv_used, "cached": last.kv_cached, "free": last.kv_free}
    return [({"state": state}, blocks) for state, blocks in states.items()]
