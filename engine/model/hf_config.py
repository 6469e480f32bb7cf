"""From a Hugging Face config.json to the facts of a model, refusing what the graph lacks."""

from pathlib import Path
from typing import Any

from surgetank.engine.model.config import (
    ARCHITECTURES,
    ModelConfig,
    llama3_inv_freq,
    plain_inv_freq,
)
from surgetank.engine.model.errors import ModelError


def parse_config(file: Path, raw: dict[str, Any]) -> ModelConfig:
    """Check and translate; `file` is only named in errors. Raises ModelError."""
    architecture = raw.get("model_type")
    if architecture not in ARCHITECTURES:
        raise ModelError(
            file,
            f"unsupported architecture {architecture!r}; supported: {', '.join(ARCHITECTURES)}",
        )
    _refuse_unsupported(file, raw)
    hidden, heads = _int(file, raw, "hidden_size"), _int(file, raw, "num_attention_heads")
    head_dim = _int(file, raw, "head_dim", hidden // heads)
    bias = bool(raw.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        vocab_size=_int(file, raw, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_int(file, raw, "intermediate_size"),
        num_layers=_int(file, raw, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_int(file, raw, "num_key_value_heads", heads),
        head_dim=head_dim,
        context_length=_int(file, raw, "max_position_embeddings"),
        norm_eps=_float(file, raw, "rms_norm_eps", 1e-6),
        rope_inv_freq=_inv_freq(file, raw, head_dim),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=bias or architecture == "qwen2",
        output_bias=bias and architecture == "llama",
    )


def _refuse_unsupported(file: Path, raw: dict[str, Any]) -> None:
    if (activation := raw.get("hidden_act", "silu")) != "silu":
        raise ModelError(file, f"hidden_act is {activation!r}; only silu is supported")
    if raw.get("mlp_bias"):
        raise ModelError(file, "mlp_bias is set: biases in the MLP are not supported")
    if raw.get("quantization_config"):
        raise ModelError(file, "quantization_config is set: quantised folders are not supported")
    window = raw.get("sliding_window")
    windowed = raw.get("use_sliding_window", raw["model_type"] == "mistral")
    if windowed and window is not None and window < raw.get("max_position_embeddings", 0):
        raise ModelError(file, f"sliding_window is {window}: sliding windows are not supported")
    if raw.get("partial_rotary_factor", 1) != 1:
        raise ModelError(file, "partial_rotary_factor is not 1: not supported")


def _inv_freq(file: Path, raw: dict[str, Any], head_dim: int) -> tuple[float, ...]:
    """Older files write rope_theta and rope_scaling, newer ones rope_parameters."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = _float(file, raw | rope, "rope_theta", 10000.0)
    plain = plain_inv_freq(theta, head_dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return plain
    if kind != "llama3":
        raise ModelError(file, f"unsupported rope scaling {kind!r}; supported: default, llama3")
    return llama3_inv_freq(
        plain,
        factor=_float(file, rope, "factor"),
        low_freq_factor=_float(file, rope, "low_freq_factor"),
        high_freq_factor=_float(file, rope, "high_freq_factor"),
        original_context=_int(file, rope, "original_max_position_embeddings"),
    )


def _int(file: Path, raw: dict[str, Any], key: str, default: int | None = None) -> int:
    value = default if raw.get(key) is None else raw[key]
    if not isinstance(value, int) or value <= 0:
        raise ModelError(file, f"{key} is {value!r}; expected a whole number above 0")
    return value


def _float(file: Path, raw: dict[str, Any], key: str, default: float | None = None) -> float:
    value = default if raw.get(key) is None else raw[key]
    if not isinstance(value, int | float) or value <= 0:
        raise ModelError(file, f"{key} is {value!r}; expected a number above 0")
    return float(value)
