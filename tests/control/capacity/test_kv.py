"""KV bytes by layer type, against hand-computed cases, and what fits in a pool."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from surgetank.control.capacity.config_json import read_config
from surgetank.control.capacity.kv import Layout, lay_out
from surgetank.control.capacity.sources import find_model

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "intermediate_size": 2048,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
}


def layout_of(config: dict[str, Any], tp: int = 1, width: int = 2, block: int = 16) -> Layout:
    model = read_config(config, "tiny", "test")
    return lay_out(model, tp=tp, kv_width=width, state_width=2, block_size=block)


def test_grouped_heads() -> None:
    assert layout_of(LLAMA).token_bytes == 4 * 2 * (64 + 64) * 2


def test_without_kv_heads_every_head_has_its_own() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert layout_of(config).token_bytes == 4 * 16 * (64 + 64) * 2


def test_an_eight_bit_cache_is_half() -> None:
    assert layout_of(LLAMA, width=1).token_bytes * 2 == layout_of(LLAMA).token_bytes


def test_latent_attention_keeps_one_vector_on_every_rank() -> None:
    model = find_model("DeepSeek-V3")
    for tp in (1, 8):
        layout = lay_out(model, tp=tp, kv_width=2, state_width=2, block_size=64)
        assert layout.token_bytes == 576 * 61 * 2 == 70_272


def test_a_window_caps_what_a_sequence_holds() -> None:
    model = find_model("Mistral-7B-v0.1")  # every layer looks back 4,096 tokens
    layout = lay_out(model, tp=1, kv_width=2, state_width=2, block_size=16)
    assert layout.sequence_blocks(4096) == 256
    assert layout.sequence_blocks(4112) == 257  # a window need not start at a block's edge
    assert layout.sequence_blocks(1_000_000) == 257
    assert layout.sequence_bytes(1_000_000) == 257 * 16 * 131_072


def test_full_and_windowed_layers_share_the_pool_in_equal_groups() -> None:
    model = find_model("Gemma-3-12b-it")  # 8 full layers, 40 of a window of 1,024
    layout = lay_out(model, tp=1, kv_width=2, state_width=2, block_size=16)
    assert sorted(layout.groups, key=str) == [(1024, 5), (None, 1)]
    assert layout.block_bytes == 16 * 8 * 8 * (256 + 256) * 2  # one block serves eight layers
    context = 32_768
    full, windowed = 2048, 65
    assert layout.sequence_blocks(context) == full + 5 * windowed
    assert layout.sequence_bytes(context) < 0.2 * context * layout.token_bytes
    assert layout.tokens(600) == 600 // 6 * 16


def test_a_short_last_group_is_padded() -> None:
    model = find_model("Gemma-3-4b-it")  # 5 full, 29 windowed: 6 groups of 5, one padded
    layout = lay_out(model, tp=1, kv_width=2, state_width=2, block_size=16)
    assert sorted(layout.groups, key=str) == [(1024, 6), (None, 1)]


def test_nearly_equal_kinds_make_one_group_each() -> None:
    kinds = ["sliding_attention"] * 5 + ["full_attention"] * 4
    config = LLAMA | {"num_hidden_layers": 9, "layer_types": kinds, "sliding_window": 128}
    layout = layout_of(config)
    assert sorted(layout.groups, key=str) == [(128, 1), (None, 1)]
    assert layout.block_bytes == 16 * 5 * 2 * (64 + 64) * 2


def test_a_window_that_is_switched_off_is_none() -> None:
    off = LLAMA | {"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": False}
    assert layout_of(off).groups == ((None, 1),)
    on = off | {"use_sliding_window": True, "max_window_layers": 2}
    assert sorted(layout_of(on).groups, key=str) == [(128, 1), (None, 1)]


def test_layers_that_share_a_cache_keep_none() -> None:
    assert layout_of(LLAMA | {"num_kv_shared_layers": 1}).token_bytes == 3 * 2 * 128 * 2


@given(pool=st.integers(0, 10**9), sequences=st.integers(1, 50), context=st.integers(1, 5000))
def test_what_is_said_to_fit_fits_and_one_more_does_not(
    pool: int, sequences: int, context: int
) -> None:
    layout = layout_of(LLAMA)
    count = layout.concurrency(pool, context)
    assert count * layout.sequence_bytes(context) <= pool
    assert (count + 1) * layout.sequence_bytes(context) > pool
    longest = layout.context(pool, sequences, 8192)
    assert sequences * layout.sequence_bytes(longest) <= pool
    assert longest == 8192 or sequences * layout.sequence_bytes(longest + 1) > pool
