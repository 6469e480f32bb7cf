"""A step record becomes the batch, memory and compute metrics; the loop's stages sum to wall."""

import msgspec
import pytest

from surgetank.telemetry.engine_recorder import EngineRecorder, step_kind
from surgetank.telemetry.family import HistogramReading
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import StepKind

STEP = StepRecord(
    step=1,
    at=100.0,
    drain=0.001,
    schedule=0.002,
    forward=0.02,
    sample=0.003,
    emit=0.004,
    idle=0.5,
    prefill_tokens=32,
    decode_tokens=3,
    prefill_seqs=1,
    decode_seqs=3,
    token_budget=64,
    slots_filled=4,
    slots_no_work=0,
    slots_blocked_kv=3,
    slots_blocked_token_budget=1,
    slots_blocked_limit=0,
    slots_blocked_other=0,
    waiting=(0, 2, 1, 0),
    running=(1, 3, 0, 0),
    contended=True,
    kv_used=10,
    kv_cached=4,
    kv_free=50,
    kv_stored_tokens=150,
    kv_resident_tokens=140,
    prefix_hit_tokens=16,
    prefix_miss_tokens=20,
    prefill_backlog=77,
    preempted_recompute=1,
    preempted_tokens=40,
    swapped_out_bytes=4096,
    allocation_failures=2,
)
QUIET = msgspec.structs.replace(
    STEP,
    contended=False,
    prefill_seqs=0,
    prefill_tokens=0,
    slots_filled=3,
    slots_no_work=5,
    slots_blocked_kv=0,
    slots_blocked_token_budget=0,
)


@pytest.fixture
def recorder() -> EngineRecorder:
    return EngineRecorder(Registry(Process.ENGINE), kv_block_size=16)


def samples(recorder: EngineRecorder) -> dict[tuple[str, ...], float]:
    """Every counter and gauge: (name, *label values) -> value."""
    return {
        (reading.spec.name, *key): value
        for reading in recorder.registry.read()
        for key, value in reading.samples.items()
        if not isinstance(value, HistogramReading)
    }


def test_before_the_first_step_gauges_are_absent_and_counters_zero(
    recorder: EngineRecorder,
) -> None:
    seen = samples(recorder)
    assert seen["memory_kv_block_size_tokens",] == 16
    assert seen["batch_steps_total", "decode"] == 0
    assert ("memory_kv_blocks", "free") not in seen
    assert ("batch_running_requests", "default") not in seen


def test_every_number_of_a_step_lands_in_its_metric(recorder: EngineRecorder) -> None:
    recorder.step(STEP)
    seen = samples(recorder)
    expected = {
        ("batch_steps_total", "mixed"): 1,
        ("batch_slot_steps_total", "filled"): 4,
        ("batch_slot_steps_total", "blocked_kv"): 3,
        ("batch_slot_steps_total", "blocked_token_budget"): 1,
        ("batch_scheduled_seqs_total",): 4,
        ("batch_seq_capacity_total",): 8,
        ("batch_contended_scheduled_seqs_total",): 4,
        ("batch_contended_seq_capacity_total",): 8,
        ("batch_scheduled_tokens_total", "prefill"): 32,
        ("batch_scheduled_tokens_total", "decode"): 3,
        ("batch_token_budget_total",): 64,
        ("batch_running_requests", "default"): 3,
        ("batch_waiting_requests", "batch"): 1,
        ("batch_prefill_backlog_tokens",): 77,
        ("batch_preemptions_total", "recompute"): 1,
        ("batch_preemptions_total", "swap"): 0,
        ("batch_preempted_tokens_total",): 40,
        ("batch_swap_bytes_total", "out"): 4096,
        ("memory_kv_blocks", "used"): 10,
        ("memory_kv_blocks", "cached"): 4,
        ("memory_kv_blocks", "free"): 50,
        ("memory_kv_stored_tokens",): 150,
        ("memory_kv_allocation_failures_total",): 2,
        ("memory_prefix_tokens_total", "hit"): 16,
        ("memory_prefix_tokens_total", "miss"): 20,
    }
    assert {key: seen[key] for key in expected} == expected
    histogram = recorder.registry.histogram("compute_step_seconds").at("mixed").read()
    assert histogram.count == 1
    assert histogram.sum == pytest.approx(0.03)


def test_steps_without_a_queue_are_not_contended(recorder: EngineRecorder) -> None:
    recorder.step(STEP)
    recorder.step(QUIET)
    seen = samples(recorder)
    assert seen["batch_scheduled_seqs_total",] == 7
    assert seen["batch_seq_capacity_total",] == 16
    assert seen["batch_contended_scheduled_seqs_total",] == 4
    assert seen["batch_contended_seq_capacity_total",] == 8


def test_the_stages_sum_to_wall_time(recorder: EngineRecorder) -> None:
    recorder.step(STEP)
    first = sum(value for key, value in samples(recorder).items() if "loop_seconds" in key[0])
    assert first == pytest.approx(0.53)
    recorder.step(msgspec.structs.replace(STEP, at=100.6))  # 0.07 s more than its parts
    seen = samples(recorder)
    stages = {key[1]: value for key, value in seen.items() if "loop_seconds" in key[0]}
    assert sum(stages.values()) - first == pytest.approx(0.6)
    assert stages == {
        "admit": pytest.approx(0.002),
        "schedule": pytest.approx(0.004),
        "forward": pytest.approx(0.04),
        "postprocess": pytest.approx(0.014 + 0.07),
        "idle": pytest.approx(1.0),
    }


@pytest.mark.parametrize(
    ("prefill", "decode", "kind"),
    [
        (1, 0, StepKind.PREFILL),
        (0, 2, StepKind.DECODE),
        (1, 2, StepKind.MIXED),
        (0, 0, None),
    ],
)
def test_the_kind_of_a_step(prefill: int, decode: int, kind: StepKind | None) -> None:
    record = msgspec.structs.replace(STEP, prefill_seqs=prefill, decode_seqs=decode)
    assert step_kind(record) is kind


def test_a_turn_that_scheduled_nothing_is_no_step(recorder: EngineRecorder) -> None:
    recorder.step(msgspec.structs.replace(STEP, prefill_seqs=0, decode_seqs=0))
    steps = {key: value for key, value in samples(recorder).items() if "steps_total" in key[0]}
    assert steps["batch_steps_total", "mixed"] == 0
    assert steps["batch_steps_total", "decode"] == 0
