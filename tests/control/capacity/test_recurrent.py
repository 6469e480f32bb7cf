"""Hybrid models: constant state per sequence beside the layers of attention, counted by hand."""

from typing import Any

import pytest

from surgetank.control.capacity.config_json import read_config
from surgetank.control.capacity.kv import lay_out
from surgetank.control.capacity.units import CapacityError

QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 5632,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "vocab_size": 151_936,
    "max_position_embeddings": 262_144,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
JAMBA: dict[str, Any] = {
    "model_type": "jamba",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 65_536,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 256,
}
MAMBA2: dict[str, Any] = {
    "model_type": "mamba2",
    "hidden_size": 4096,
    "num_hidden_layers": 64,
    "num_heads": 128,
    "state_size": 128,
    "n_groups": 8,
    "vocab_size": 32_768,
    "tie_word_embeddings": False,
}


def test_gated_delta_layers() -> None:
    model = read_config(QWEN3_NEXT, "Qwen3-Next-80B-A3B", "test")
    assert model.parameters == 79_674_391_296  # the reference implementation's count
    layout = lay_out(model, tp=1, kv_width=2, state_width=2, block_size=16)
    assert layout.token_bytes == 12 * 2 * (256 + 256) * 2  # every fourth layer attends
    conv = (2 * 16 * 128 + 32 * 128) * 3
    assert layout.state_bytes == 36 * (conv * 2 + 32 * 128 * 128 * 4)
    assert layout.sequence_bytes(262_144) == 262_144 * layout.token_bytes + layout.state_bytes


def test_mamba_layers_between_attention() -> None:
    model = read_config(JAMBA, "Jamba-v0.1", "test")
    assert model.parameters == 51_570_323_328
    layout = lay_out(model, tp=2, kv_width=2, state_width=2, block_size=16)
    assert layout.token_bytes == 4 * (8 // 2) * (128 + 128) * 2
    assert layout.state_bytes == 28 * (8192 * 3 * 2 + 8192 * 16 * 4) // 2


def test_a_model_without_attention_has_no_blocks() -> None:
    model = read_config(MAMBA2 | {"expand": 2}, "Mamba-Codestral-7B", "test")
    assert model.parameters == pytest.approx(7.285e9, rel=1e-3)
    layout = lay_out(model, tp=1, kv_width=2, state_width=2, block_size=16)
    assert (layout.token_bytes, layout.blocks(10**12, 1)) == (0, 0)
    assert layout.state_bytes == 64 * ((8192 + 2 * 8 * 128) * 3 * 2 + 8192 * 128 * 4)
    assert layout.concurrency(10**10, 1) == layout.concurrency(10**10, 10**6) == 36


def test_recurrent_layers_of_an_unknown_family_are_refused() -> None:
    config = QWEN3_NEXT | {"model_type": "novel", "layer_types": ["linear_attention"] * 48}
    with pytest.raises(CapacityError, match="'novel' has recurrent layers of a kind not known"):
        read_config(config, "novel", "config.json")


def test_an_unknown_kind_of_layer_is_refused() -> None:
    config = QWEN3_NEXT | {"layer_types": ["quantum"] * 48}
    with pytest.raises(CapacityError, match="layer_types is 'quantum'; allowed: full_attention"):
        read_config(config, "novel", "config.json")
