"""What the simulated engine says of itself: its model card, and one record per step."""

from dataclasses import dataclass
from typing import Any

from surgetank.control.lab.batch import Batch
from surgetank.control.lab.step import Step
from surgetank.control.lab.steptime import EngineSpec
from surgetank.engine.api import ModelCard
from surgetank.engine.plan import prompt_room
from surgetank.telemetry.steprecord import PREEMPTIONS, StepRecord, tally
from surgetank.telemetry.vocabulary import (
    PreemptionKind,
    PreemptionReason,
    Priority,
    SlotState,
)

MODEL = "simulated"
BLOCK_BYTES = 1  # a block has no contents here
_NO_TIMES = {"drain": 0.0, "schedule": 0.0, "sample": 0.0, "emit": 0.0}
_NONE_PREEMPTED = tally(PREEMPTIONS, ())


@dataclass(slots=True)
class Made:
    """One step of a run of equal ones: where they differ."""

    at: float  # when it ended
    took: float
    idle: float  # nothing to do, before it
    context: int
    kv: tuple[int, int, int]  # blocks: used, cached, free
    kv_stored: int  # tokens
    number: int = 0


def card_of(spec: EngineSpec) -> ModelCard:
    """The card of an engine of that size; it has no tokenizer, because it has no words."""
    return ModelCard(
        name=MODEL,
        context_length=spec.context_length,
        vocab_size=2**31,
        eos_token_ids=(),
        tokenizer="",
        chat_template="",
        bos_token="",
        eos_token="",
        add_bos=False,
        architecture=MODEL,
        parameters=0,
        dtype=MODEL,
        device=MODEL,
        kv_block_size=spec.block_size,
        kv_blocks=spec.kv_blocks,
        kv_bytes_per_token=0,
        max_num_seqs=spec.max_num_seqs,
        max_batch_tokens=spec.max_batch_tokens,
        prefill_share=spec.prefill_share,
        kv_watermark=spec.kv_watermark,
        tpot_target=spec.tpot_target,
        engine_version=MODEL,
        pid=0,
    )


def facts_of(batch: Batch, spec: EngineSpec, step: Step) -> dict[str, Any]:
    """What the records of a run of equal steps have in common, from the batch as it stands."""
    slots, preempted = _slots(batch, spec, step), step.preempted
    kinds = [(gone.kind, gone.reason, gone.seq.priority) for gone in preempted]
    return {
        **_NO_TIMES,
        "prefill_tokens": step.prefill,
        "decode_tokens": step.decode,
        "prefill_seqs": step.prefill_seqs,
        "decode_seqs": step.decode,
        "token_budget": step.budget.tokens,
        "slots_filled": slots[SlotState.FILLED],
        "slots_no_work": slots[SlotState.NO_WORK],
        "slots_blocked_kv": slots[SlotState.BLOCKED_KV],
        "slots_blocked_token_budget": slots[SlotState.BLOCKED_TOKEN_BUDGET],
        "slots_blocked_limit": slots[SlotState.BLOCKED_LIMIT],
        "slots_blocked_other": 0,
        "contended": step.contended,
        "prefix_hit_tokens": 0,
        "prefix_miss_tokens": sum(seq.prompt for seq in step.started),
        "preemptions": tally(PREEMPTIONS, kinds) if kinds else _NONE_PREEMPTED,
        "preempted_tokens": step.tokens_of(PreemptionKind.RECOMPUTE),
        "swapped_tokens": step.tokens_of(PreemptionKind.SWAP),
        "recomputed_tokens": step.recomputed,
        "swapped_in_bytes": step.swapped_in * BLOCK_BYTES,
        "swapped_out_bytes": step.swapped_out * BLOCK_BYTES,
        "allocation_failures": step.preempted_for(PreemptionReason.KV) + step.starved,
        "kv_swapped": batch.blocks.swapped,
        "kv_limit": batch.blocks.usable,
        **left_of(batch),
    }


def left_of(batch: Batch) -> dict[str, Any]:
    """Of these facts, those that change when sequences end."""
    return {
        "waiting": _by_class(batch.waiting),
        "running": _by_class(batch.seated),
        "prefill_backlog": batch.backlog,
    }


def record_of(step: Step, made: Made, facts: dict[str, Any]) -> StepRecord:
    """One step's record."""
    used, cached, free = made.kv
    budget, load = step.budget, (step.prefill, step.decode, made.context)
    return StepRecord(
        step=made.number,
        at=made.at,
        forward=made.took,
        idle=made.idle,
        kv_used=used,
        kv_cached=cached,
        kv_free=free,
        kv_stored_tokens=made.kv_stored,
        kv_resident_tokens=made.context,
        prefill_budget=step.prefill + max(0, prompt_room(budget, *load)),
        predicted=budget.model.seconds(*load),
        **facts,
    )


def _slots(batch: Batch, spec: EngineSpec, step: Step) -> dict[SlotState, int]:
    """The step's slots by what they were, before its ended leave: engine/report.py's rule."""
    filled = step.decode + step.prefill_seqs
    held_back = len(batch.running) - filled
    empty = max(0, spec.max_num_seqs - filled - held_back)
    starved = min(step.starved, held_back)
    wanted = min(empty, sum(batch.waiting.values())) if empty else 0
    states = {
        SlotState.FILLED: filled,
        SlotState.NO_WORK: empty - wanted,
        SlotState.BLOCKED_KV: starved,
        SlotState.BLOCKED_TOKEN_BUDGET: held_back - starved,
        SlotState.BLOCKED_LIMIT: 0,
    }
    states[step.blocked_by] += wanted
    return states


def _by_class(counts: dict[Priority, int]) -> tuple[int, int, int, int]:
    critical, default, batch, sheddable = counts.values()  # in the order of the classes
    return critical, default, batch, sheddable
