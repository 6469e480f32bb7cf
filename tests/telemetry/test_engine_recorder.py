"""A step record becomes the batch, memory and compute metrics; the loop's stages sum to wall."""

import msgspec
import pytest

from surgetank.telemetry.engine_recorder import EngineRecorder, EngineSizes, step_kind
from surgetank.telemetry.family import HistogramReading
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.stepmodel import ENOUGH, StepFit
from surgetank.telemetry.steprecord import OOMS, OPERATORS, PREEMPTIONS, StepRecord, tally
from surgetank.telemetry.vocabulary import (
    OomAction,
    OomSource,
    PreemptionKind,
    PreemptionReason,
    Priority,
    StepKind,
)

RECOMPUTED = (PreemptionKind.RECOMPUTE, PreemptionReason.KV, Priority.BATCH)
SWAPPED = (PreemptionKind.SWAP, PreemptionReason.PRIORITY, Priority.SHEDDABLE)

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
    preemptions=tally(PREEMPTIONS, [RECOMPUTED, SWAPPED, SWAPPED]),
    preempted_tokens=40,
    swapped_tokens=24,
    recomputed_tokens=33,
    kv_swapped=6,
    kv_faults=1,
    swapped_out_bytes=4096,
    allocation_failures=2,
    ooms=tally(OOMS, [(OomSource.HOST, OomAction.REFUSED)]),
    operators=(0.006, 0.009, 0.002, 0.003, 0.0, 0.003),
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
    sizes = EngineSizes(
        kv_block_size=16, kv_blocks=64, parameters=1000, weight_bytes=4000, kv_bytes_per_token=10
    )
    return EngineRecorder(Registry(Process.ENGINE), sizes)


def samples(recorder: EngineRecorder) -> dict[tuple[str, ...], float]:
    """Every counter and gauge: (name, *label values) -> value."""
    return {
        (reading.spec.name, *key): value
        for reading in recorder.registry.read()
        for key, value in reading.samples.items()
        if not isinstance(value, HistogramReading)
    }


def test_before_the_first_step_gauges_show_an_empty_engine(recorder: EngineRecorder) -> None:
    seen = samples(recorder)
    assert seen["memory_kv_block_size_tokens",] == 16
    assert seen["batch_steps_total", "decode"] == 0
    blocks = {key[1]: value for key, value in seen.items() if key[0] == "memory_kv_blocks"}
    assert blocks == {"used": 0, "cached": 0, "free": 64}
    assert seen["memory_kv_stored_tokens",] == 0
    assert seen["batch_running_requests", "default"] == 0
    assert seen["batch_waiting_requests", "sheddable"] == 0


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
        ("batch_preemptions_total", "recompute", "kv", "batch"): 1,
        ("batch_preemptions_total", "recompute", "kv", "default"): 0,
        ("batch_preemptions_total", "swap", "priority", "sheddable"): 2,
        ("batch_preempted_tokens_total", "recompute"): 40,
        ("batch_preempted_tokens_total", "swap"): 24,
        ("batch_recomputed_tokens_total",): 33,
        ("memory_kv_swap_blocks",): 6,
        ("memory_kv_faults_total",): 1,
        ("batch_swap_bytes_total", "out"): 4096,
        ("memory_kv_blocks", "used"): 10,
        ("memory_kv_blocks", "cached"): 4,
        ("memory_kv_blocks", "free"): 50,
        ("memory_kv_stored_tokens",): 150,
        ("memory_kv_allocation_failures_total",): 2,
        ("memory_prefix_tokens_total", "hit"): 16,
        ("memory_prefix_tokens_total", "miss"): 20,
        ("memory_oom_total", "host", "refused"): 1,
        ("memory_oom_total", "kv", "refused"): 0,
        ("compute_sampled_steps_total",): 1,
        ("compute_operator_seconds_total", "gemm"): 0.009,
        ("compute_estimated_flops_total",): 2 * 1000 * 35,
        ("compute_estimated_bytes_total", "read"): 4000 + 140 * 10,
        ("compute_estimated_bytes_total", "written"): 350,
    }
    assert {key: seen[key] for key in expected} == expected
    histogram = recorder.registry.histogram("compute_step_seconds").at("mixed").read()
    assert histogram.count == 1
    assert histogram.sum == pytest.approx(0.03)


def test_only_sampled_steps_count_as_samples(recorder: EngineRecorder) -> None:
    recorder.step(STEP)
    recorder.step(msgspec.structs.replace(STEP, operators=(0.0,) * len(OPERATORS)))
    seen = samples(recorder)
    assert seen["compute_sampled_steps_total",] == 1
    assert seen["compute_operator_seconds_total", "attention"] == 0.006


def test_the_step_model_is_absent_until_it_is_believed(recorder: EngineRecorder) -> None:
    fit = StepFit()
    recorder.show_fit(fit)
    assert ("compute_step_model_seconds", "step") not in samples(recorder)
    assert ("compute_step_model_error_ratio",) not in samples(recorder)
    for prefill in range(ENOUGH * 20):
        fit.learn(prefill % 7, 1, 0, 0.01 + 0.001 * (prefill % 7))
    seen = samples(recorder)
    assert seen["compute_step_model_seconds", "prefill_token"] == pytest.approx(0.001, rel=0.05)
    assert seen["compute_step_model_error_ratio",] < 0.05


def test_steps_without_a_queue_are_not_contended(recorder: EngineRecorder) -> None:
    recorder.step(STEP)
    recorder.step(QUIET)
    seen = samples(recorder)
    assert seen["batch_scheduled_seqs_total",] == 7
    assert seen["batch_seq_capacity_total",] == 16
    assert seen["batch_contended_scheduled_seqs_total",] == 4
    assert seen["batch_contended_seq_capacity_total",] == 8


def test_the_stages_sum_to_wall_time(recorder: EngineRecorder) -> None:
    recorder.rested(0.1)
    recorder.rested(0.4)
    first = sum(value for key, value in samples(recorder).items() if "loop_seconds" in key[0])
    assert first == 0.5  # before any step
    recorder.step(STEP)
    first = sum(value for key, value in samples(recorder).items() if "loop_seconds" in key[0])
    assert first == pytest.approx(0.53)
    recorder.rested(0.5)
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
    steps = {key: value for key, value in samples(recorder).items() if "batch_steps" in key[0]}
    assert steps["batch_steps_total", "mixed"] == 0
    assert steps["batch_steps_total", "decode"] == 0
