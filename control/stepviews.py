"""What a step ring says, for people and scripts: steps and why they were slow, and the KV pool."""

from statistics import median

from pydantic import BaseModel, Field

from surgetank.engine.ring import Ring, previous_path
from surgetank.telemetry.engine_recorder import slots_of, step_kind
from surgetank.telemetry.metricspec import PRIORITIES
from surgetank.telemetry.stepmodel import step_seconds
from surgetank.telemetry.steprecord import OOMS, OPERATORS, PREEMPTIONS, StepRecord
from surgetank.telemetry.vocabulary import SlotState

SLOW = 3.0  # times the median
_EMPTY_FOR_NOTHING = (SlotState.FILLED, SlotState.NO_WORK)


class RingOut(BaseModel):
    """Whose steps these are, and how many are kept."""

    path: str
    pid: int
    alive: bool
    version: str
    model: str
    started_at: float = Field(description="seconds since the Unix epoch")
    capacity: int = Field(description="steps")
    newest: int = Field(description="number of the newest step; 0 before the first")
    unreadable: int = Field(description="records that were half written")
    previous: str | None = Field(description="the ring of the engine before, where there is one")


class Share(BaseModel):
    """What took most of a step."""

    what: str = Field(description="a stage; of a sampled step's forward pass, an operator")
    seconds: float
    ratio: float = Field(description="of the whole step")


class StepOut(BaseModel):
    """One step. Durations in seconds, `at` since the Unix epoch, when the step ended."""

    step: int
    at: float
    seconds: float
    kind: str
    binding: str = Field(description="why slots stood empty while somebody waited, else filled")
    dominated_by: Share
    stages: dict[str, float]
    operators: dict[str, float] | None = Field(description="null: this step was no sample")
    prefill_tokens: int
    decode_tokens: int
    token_budget: int
    context_tokens: int
    slots: dict[str, int]
    waiting: dict[str, int]
    running: dict[str, int]
    kv_blocks: dict[str, int]
    kv_stored_tokens: int
    prefix_tokens: dict[str, int]
    preemptions: dict[str, int] = Field(description="by kind, reason and class; none are left out")
    swapped_bytes: dict[str, int]
    allocation_failures: int
    out_of_memory: dict[str, int] = Field(description="by source and action; none are left out")


class StepsOut(BaseModel):
    """Steps, oldest first."""

    engine: RingOut
    median_seconds: float | None = Field(
        description="of the steps looked at that computed something"
    )
    steps: list[StepOut]


class Holder(BaseModel):
    """One class's part of the KV pool; blocks that two sequences share count in both."""

    priority: str
    blocks: int
    running: int
    waiting: int


class KvOut(BaseModel):
    """The KV pool after the newest step, and what the kept steps say of its prefix cache."""

    engine: RingOut
    at: float | None
    block_size: int
    blocks: dict[str, int]
    stored_tokens: int
    fragmentation: float | None = Field(description="1 - stored / (used * size); null: none used")
    prefix_tokens: dict[str, int]
    hit_ratio: float | None = Field(description="of the prompt tokens looked up; null: none were")
    over_steps: int = Field(description="how many steps prefix, preemptions and failures cover")
    preemptions: dict[str, int]
    swapped_bytes: dict[str, int]
    allocation_failures: int
    holders: list[Holder] = Field(description="by class, the largest first")


def steps_out(ring: Ring, last: int, slow: bool) -> StepsOut:
    """The newest `last` steps; with `slow` only those above SLOW times the median."""
    busy = [record for record in ring.records if step_kind(record) is not None]
    usual = median(map(step_seconds, busy)) if busy else None
    chosen = ring.records
    if slow:
        chosen = [record for record in busy if step_seconds(record) > SLOW * (usual or 0.0)]
    offset = ring.writer.clock_offset
    steps = [_step_out(record, offset) for record in chosen[-last:]]
    return StepsOut(engine=_ring_out(ring), median_seconds=usual, steps=steps)


def kv_out(ring: Ring) -> KvOut:
    """The KV pool as the newest record has it; an empty one before the first step."""
    newest = ring.records[-1] if ring.records else None
    size, blocks = (
        ring.writer.kv_block_size,
        {"used": 0, "cached": 0, "free": ring.writer.kv_blocks},
    )
    stored, holders, at = 0, [], None
    if newest is not None:
        blocks, stored = _kv_blocks(newest), newest.kv_stored_tokens
        holders = _holders(newest)
        at = newest.at + ring.writer.clock_offset
    hits = sum(record.prefix_hit_tokens for record in ring.records)
    misses = sum(record.prefix_miss_tokens for record in ring.records)
    used = blocks["used"]
    return KvOut(
        engine=_ring_out(ring),
        at=at,
        block_size=size,
        blocks=blocks,
        stored_tokens=stored,
        fragmentation=1 - stored / (used * size) if used else None,
        prefix_tokens={"hit": hits, "miss": misses},
        hit_ratio=hits / (hits + misses) if hits + misses else None,
        over_steps=len(ring.records),
        preemptions=_summed([_preemptions(record) for record in ring.records]),
        swapped_bytes=_summed([_swapped(record) for record in ring.records]),
        allocation_failures=sum(record.allocation_failures for record in ring.records),
        holders=holders,
    )


def binding(record: StepRecord) -> SlotState:
    """The one reason that most of the wanted slots stood empty for; without one, how slots were."""
    slots = slots_of(record)
    blocked = {state: count for state, count in slots.items() if state not in _EMPTY_FOR_NOTHING}
    worst = max(blocked, key=lambda state: blocked[state])
    if blocked[worst]:
        return worst
    return SlotState.NO_WORK if slots[SlotState.NO_WORK] else SlotState.FILLED


def dominated_by(record: StepRecord) -> Share:
    """The largest stage; where that is a sampled forward pass, the largest operator in it."""
    stages = _stages(record)
    what = max(stages, key=lambda stage: stages[stage])
    seconds, whole = stages[what], step_seconds(record)
    operators = _operators(record)
    if what == "forward" and operators is not None:
        what = max(operators, key=lambda operator: operators[operator])
        seconds = operators[what]
    return Share(what=what, seconds=seconds, ratio=seconds / whole if whole else 0.0)


def _step_out(record: StepRecord, offset: float) -> StepOut:
    return StepOut(
        step=record.step,
        at=record.at + offset,
        seconds=step_seconds(record),
        kind=step_kind(record) or "none",
        binding=binding(record),
        dominated_by=dominated_by(record),
        stages=_stages(record) | {"idle": record.idle},
        operators=_operators(record),
        prefill_tokens=record.prefill_tokens,
        decode_tokens=record.decode_tokens,
        token_budget=record.token_budget,
        context_tokens=record.kv_resident_tokens,
        slots={state.value: count for state, count in slots_of(record).items()},
        waiting=dict(zip(PRIORITIES, record.waiting)),
        running=dict(zip(PRIORITIES, record.running)),
        kv_blocks=_kv_blocks(record),
        kv_stored_tokens=record.kv_stored_tokens,
        prefix_tokens={"hit": record.prefix_hit_tokens, "miss": record.prefix_miss_tokens},
        preemptions=_preemptions(record),
        swapped_bytes=_swapped(record),
        allocation_failures=record.allocation_failures,
        out_of_memory={
            f"{source} {action}": count
            for (source, action), count in zip(OOMS, record.ooms)
            if count
        },
    )


def _ring_out(ring: Ring) -> RingOut:
    writer, previous = ring.writer, previous_path(ring.path)
    return RingOut(
        path=str(ring.path),
        pid=writer.pid,
        alive=ring.alive,
        version=writer.version,
        model=writer.model,
        started_at=writer.started_at,
        capacity=ring.capacity,
        newest=ring.newest,
        unreadable=ring.unreadable,
        previous=str(previous) if previous.exists() else None,
    )


def _stages(record: StepRecord) -> dict[str, float]:
    names = ("drain", "schedule", "forward", "sample", "emit")
    return {name: getattr(record, name) for name in names}


def _operators(record: StepRecord) -> dict[str, float] | None:
    if not any(record.operators):
        return None
    return {operator.value: seconds for operator, seconds in zip(OPERATORS, record.operators)}


def _kv_blocks(record: StepRecord) -> dict[str, int]:
    return {"used": record.kv_used, "cached": record.kv_cached, "free": record.kv_free}


def _holders(record: StepRecord) -> list[Holder]:
    rows = zip(PRIORITIES, record.kv_held, record.running, record.waiting)
    holders = [
        Holder(priority=priority, blocks=blocks, running=running, waiting=waiting)
        for priority, blocks, running, waiting in rows
    ]
    return sorted(holders, key=lambda holder: -holder.blocks)


def _preemptions(record: StepRecord) -> dict[str, int]:
    counted = zip(PREEMPTIONS, record.preemptions)
    return {
        f"{kind} {reason} {PRIORITIES[priority]}": count
        for (kind, reason, priority), count in counted
        if count
    }


def _swapped(record: StepRecord) -> dict[str, int]:
    return {"in": record.swapped_in_bytes, "out": record.swapped_out_bytes}


def _summed(counts: list[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total
