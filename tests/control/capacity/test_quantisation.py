"""Quantised checkpoints: codes, scales, zero points, and what stays in 16 bits."""

from typing import Any

import pytest

from surgetank.control.capacity.config_json import read_config
from surgetank.control.capacity.quantisation import read_quantisation
from surgetank.control.capacity.sources import table
from surgetank.control.capacity.units import CapacityError
from surgetank.control.capacity.weights import Weights, weigh

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
LLAMA_3_8B: dict[str, Any] = next(e["config"] for e in table() if e["name"] == "Llama-3-8B")
LINEAR = 32 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14_336)
REST = 2 * 128_256 * 4096 + 65 * 4096


def weights_of(quantization: dict[str, Any] | None) -> Weights:
    config = LLAMA_3_8B | {"quantization_config": quantization}
    return weigh(read_config(config, "tiny", "test"), "auto", tp=1)


def test_awq_llama_3_8b_is_5_73_gb_as_on_disk() -> None:
    weights = weights_of(AWQ)
    assert (weights.coded_elements, weights.plain_elements) == (LINEAR, REST)
    assert weights.plain == 2 * REST
    assert weights.coded == LINEAR / 2 + LINEAR / 128 * (2 + 0.5)
    assert weights.total / 1e9 == pytest.approx(5.73, rel=0.001)


def test_gptq_adds_a_group_index_per_input() -> None:
    raw = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    inputs = 32 * (4096 * 6 + 14_336)  # of the seven linear layers
    assert weights_of(raw).coded - weights_of(AWQ).coded == 4 * inputs


def test_a_quantised_head_is_counted_when_the_checkpoint_says_so() -> None:
    raw = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}
    assert weights_of(raw).coded_elements == LINEAR + 128_256 * 4096


def test_fp8_blocks() -> None:
    raw = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert weights_of(raw).coded == LINEAR + 4 * LINEAR // 128**2


def test_fp8_with_one_scale_per_tensor() -> None:
    assert weights_of({"quant_method": "fp8"}).coded == LINEAR + 4 * 32 * 7


def test_eight_bit_channels_of_compressed_tensors() -> None:
    group = {"weights": {"num_bits": 8, "strategy": "channel", "symmetric": True}}
    raw = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    outputs = 32 * (4096 + 1024 + 1024 + 4096 + 2 * 14_336 + 4096)
    assert weights_of(raw).coded == LINEAR + 2 * outputs


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("re:.*self_attn.*", 32 * 4096 * (4096 + 1024 + 1024 + 4096)),
        ("model.layers.0.mlp.down_proj", 4096 * 14_336),
        ("model.layers.*.self_attn", 32 * 4096 * (4096 + 1024 + 1024 + 4096)),
        ("model.layers.1", 4096 * (10_240 + 3 * 14_336)),  # not layers 10 to 19
    ],
)
def test_modules_left_alone_stay_in_16_bits(pattern: str, left: int) -> None:
    weights = weights_of(AWQ | {"modules_to_not_convert": [pattern]})
    assert weights.plain_elements == REST + left


def test_mxfp4_experts_of_gpt_oss_20b_are_13_76_gb() -> None:
    config: dict[str, Any] = {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 2880,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "vocab_size": 201_088,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        },
    }
    model = read_config(config, "gpt-oss-20b", "test")
    assert model.parameters == pytest.approx(20.91e9, rel=0.001)
    assert weigh(model, "auto", 1).total / 1e9 == pytest.approx(13.76, rel=0.003)


def test_bitsandbytes_and_nvfp4() -> None:
    four = weights_of({"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert four.coded == LINEAR // 2 + 4 * LINEAR // 64
    nvfp4 = weights_of({"quant_method": "modelopt", "quant_algo": "NVFP4"})
    assert nvfp4.coded == LINEAR // 2 + LINEAR // 16


def test_deepseek_v3_keeps_embeddings_and_routers_in_16_bits() -> None:
    entry = next(entry for entry in table() if entry["name"] == "DeepSeek-V3")
    weights = weigh(read_config(entry["config"], "DeepSeek-V3", "test"), "auto", 1)
    assert weights.plain_elements > 2 * 129_280 * 7168
    assert weights.total / 1e9 == pytest.approx(673, rel=0.001)


def test_a_dtype_asked_for_replaces_the_checkpoints_own() -> None:
    model = read_config(LLAMA_3_8B | {"quantization_config": AWQ}, "tiny", "test")
    assert weigh(model, "bfloat16", 1).total == 2 * model.parameters
    assert weigh(model, "float32", 1).total == 4 * model.parameters


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"quant_method": "awqq"}, "'awqq' is not known; did you mean awq"),
        ({"quant_method": "gptq"}, "method gptq is not readable"),
        ({"quant_method": "compressed-tensors", "config_groups": 3}, "is not readable"),
        ([], "not an object"),
    ],
)
def test_an_unreadable_scheme_is_one_sentence(raw: object, sentence: str) -> None:
    with pytest.raises(CapacityError, match=sentence):
        read_quantisation(raw)
