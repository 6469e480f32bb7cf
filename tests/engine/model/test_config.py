"""Sizes and rotary frequencies against published figures."""

import math

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from surgetank.engine.model.config import (
    ModelConfig,
    llama3_inv_freq,
    plain_inv_freq,
    scaled_inv_freq,
    weight_shapes,
)

LLAMA_3_1_8B = ModelConfig(
    architecture="llama",
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    context_length=131072,
    norm_eps=1e-5,
    rope_inv_freq=plain_inv_freq(500000.0, 128),
    tied_embeddings=False,
)


def test_llama_3_1_8b_has_its_published_size() -> None:
    assert LLAMA_3_1_8B.parameters() == 8_030_261_248
    assert LLAMA_3_1_8B.weight_bytes(2) == 16_060_522_496


def test_llama_3_1_8b_keeps_128_kib_of_kv_per_token() -> None:
    assert LLAMA_3_1_8B.kv_bytes_per_token(2) == 128 * 1024


def test_only_what_the_config_names_is_asked_for() -> None:
    shapes = weight_shapes(LLAMA_3_1_8B)
    assert shapes["model.layers.31.self_attn.k_proj.weight"] == (1024, 4096)
    assert "model.layers.0.self_attn.k_proj.bias" not in shapes
    assert len(shapes) == 3 + 32 * 9


def test_llama3_scaling_equals_transformers() -> None:
    parameters = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = transformers.LlamaConfig(
        hidden_size=4096, num_attention_heads=32, rope_parameters=parameters
    )
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    ours = llama3_inv_freq(
        plain_inv_freq(500000.0, 128),
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_context=8192,
    )
    torch.testing.assert_close(torch.tensor(ours), theirs, rtol=1e-6, atol=0)


def test_scaling_by_factors_needs_one_for_each() -> None:
    assert scaled_inv_freq([1.0, 0.5], [1.0, 2.0]) == (1.0, 0.25)
    with pytest.raises(ValueError, match="shorter"):
        scaled_inv_freq([1.0, 0.5], [1.0])


def test_the_slowest_plain_frequency() -> None:
    assert math.isclose(plain_inv_freq(10000.0, 64)[-1], 10000.0 ** (-62 / 64))
