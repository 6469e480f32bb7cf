"""Costs and capacity from the step model, by hand."""

import pytest
from pydantic import ValidationError

from surgetank.control.lab.steptime import EngineSpec, StepModel

MODEL = StepModel(t0=0.010, a=1e-4, b=1e-3, c=1e-7)


def test_cost_of_a_request() -> None:
    # 100 prompt tokens: 10 ms. 50 steps of (10/5 + 1) ms: 150 ms. 1e-7 * (5000 + 1250): 0.625 ms.
    assert MODEL.cost(100, 50, batch=5) == pytest.approx(0.010 + 0.150 + 0.000625)


def test_batch_is_bound_by_slots_kv_or_the_tpot_target() -> None:
    spec = EngineSpec(model=MODEL, max_num_seqs=40, kv_blocks=10_000, block_size=16)
    assert spec.batch(100, 50, tpot=1.0) == 40
    assert spec.model_copy(update={"kv_blocks": 100}).batch(100, 50, tpot=1.0) == 1600 / 125
    # 1 ms per sequence, 1e-7 * 125 for its context, 1e-4 * 100 / 50 for the prompts of a turnover.
    per_sequence = 1e-3 + 1.25e-5 + 2e-4
    assert spec.batch(100, 50, tpot=0.030) == pytest.approx(0.020 / per_sequence)


def test_capacity_is_one_engine_second_per_second() -> None:
    spec = EngineSpec(model=MODEL, max_num_seqs=40)
    assert spec.capacity(100, 50, 1.0) * MODEL.cost(100, 50, 40) == pytest.approx(1.0)


def test_a_model_without_time_is_refused() -> None:
    with pytest.raises(ValidationError, match="a step that takes time"):
        StepModel(t0=0, a=0, b=1, c=0)


def test_a_batch_that_leaves_no_token_for_prompts_is_refused() -> None:
    with pytest.raises(ValidationError, match="more than max_num_seqs"):
        EngineSpec(max_num_seqs=64, max_batch_tokens=64)
