"""The planner against what engines printed on real devices."""

import pytest

from surgetank.control.capacity.architecture import Architecture
from surgetank.control.capacity.memory import sampling_peak
from surgetank.control.capacity.plan import Plan, make_plan
from surgetank.control.capacity.settings import read_settings
from surgetank.control.capacity.sources import find_model
from surgetank.control.capacity.units import GIB
from surgetank.control.capacity.weights import weigh

H100 = int(79.18 * GIB)
WIDE = {"max_seqs": 1024, "batch_tokens": 8192}  # vLLM's defaults on large devices


def plan_for(model: str | Architecture, **values: object) -> Plan:
    found = find_model(model) if isinstance(model, str) else model
    return make_plan(found, read_settings(values))


def test_llama_31_8b_has_1952_blocks_in_its_pool() -> None:
    plan = plan_for("Llama-3.1-8B", kv_memory=int(3.81 * GIB))
    assert plan.layout.block_bytes == 2 * 2**20
    assert plan.layout.blocks(int(3.81 * GIB), 1) == pytest.approx(1952, rel=0.01)
    assert plan.layout.blocks(1952 * plan.layout.block_bytes, 1) == 1952
    assert round(1952 * plan.layout.block_bytes / GIB, 2) == 3.81


def test_qwen3_235b_over_four_gpus_holds_367404_tokens() -> None:
    plan = plan_for("Qwen3-235B-A22B", tp=4, kv_memory=int(16.46 * GIB), block_size=1)
    assert plan.layout.token_bytes == 94 * 1 * (128 + 128) * 2  # one of the four KV heads each
    assert plan.layout.blocks(int(16.46 * GIB), 1) == pytest.approx(367_404, rel=0.01)
    assert 367_404 * plan.layout.token_bytes / GIB == pytest.approx(16.46, rel=0.01)


def test_the_pool_of_vllm_on_an_rtx_4090_is_met_on_the_safe_side() -> None:
    plan = plan_for("Llama-3.1-8B", gpu_memory=25_250_627_584)
    assert plan.pool is not None
    predicted = plan.layout.blocks(plan.pool, 1)
    assert 0.96 * 2588 < predicted <= 2588


@pytest.mark.parametrize(
    ("model", "tp", "weights", "pool"),
    [
        ("Llama-3.1-8B", 1, 14.99, 51.38),
        ("Qwen3-0.6B", 1, 1.12, 64.45),
        ("Qwen3-32B", 1, 61.03, 4.45),
        ("Qwen3-32B", 2, 30.59, 34.49),
    ],
)
def test_weights_and_pool_of_vllm_on_an_h100(
    model: str, tp: int, weights: float, pool: float
) -> None:
    plan = plan_for(model, tp=tp, gpu_memory=H100, **WIDE)
    assert plan.pool is not None
    assert plan.weights.rank / GIB == pytest.approx(weights, rel=0.01)
    assert plan.pool / GIB == pytest.approx(pool, rel=0.01)


def test_an_fp8_checkpoint_over_two_h100() -> None:
    plan = plan_for("Llama-3.3-70B-Instruct", tp=2, dtype="fp8", gpu_memory=H100, **WIDE)
    assert plan.pool is not None
    assert plan.weights.rank / GIB == pytest.approx(33.88, rel=0.01)
    assert plan.pool / GIB == pytest.approx(32.00, rel=0.01)


@pytest.mark.parametrize(
    ("vocab", "hidden", "measured"),
    [
        (128_256, 4096, 4.76),  # Llama-3.1-8B
        (151_936, 1024, 5.56),  # Qwen3-0.6B
        (151_936, 5120, 5.64),  # Qwen3-32B
        (201_088, 2880, 7.38),  # gpt-oss
        (128_256, 8192, 4.84),  # Llama-3.3-70B
    ],
)
def test_peak_activations_of_vllm(vocab: int, hidden: int, measured: float) -> None:
    peak = sampling_peak(1024, vocab, 8192, hidden, 2)
    assert peak / GIB == pytest.approx(measured, rel=0.01)


def test_kv_heads_are_replicated_when_there_are_more_ranks() -> None:
    four = plan_for("Qwen3-235B-A22B", tp=4).layout
    eight = plan_for("Qwen3-235B-A22B", tp=8).layout
    assert eight.token_bytes == four.token_bytes  # four KV heads: one each, twice over
    model = find_model("Qwen3-235B-A22B")
    halves = weigh(model, "auto", 4).rank / weigh(model, "auto", 8).rank
    assert 1.9 < halves < 2  # the replicated projections keep it below two
