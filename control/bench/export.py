"""The served model as a folder that Hugging Face and vLLM load: the same dequantised weights."""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

from surgetank.control.bench.document import BenchError
from surgetank.engine.model.config import ModelConfig, plain_inv_freq, weight_shapes
from surgetank.engine.model.load import open_checkpoint

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}


def export(model: Path, folder: Path, dtype: torch.dtype) -> Path:
    """Write config.json and model.safetensors; a folder that has both is left as it is.

    Raises BenchError for a rotary scaling that a plain config cannot say, ModelError, OSError.
    """
    weights, config_json = folder / "model.safetensors", folder / "config.json"
    if weights.exists() and config_json.exists():
        return folder
    checkpoint = open_checkpoint(model)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: checkpoint.tensor(name).to(dtype).contiguous()
        for name in weight_shapes(checkpoint.config)
    }
    save_file(tensors, weights, metadata={"format": "pt"})
    config_json.write_text(json.dumps(hf_config(checkpoint.config, dtype), indent=2))
    return folder


def hf_config(config: ModelConfig, dtype: torch.dtype) -> dict[str, object]:
    """The model's facts in Hugging Face's words. Raises BenchError."""
    theta = config.rope_inv_freq[1] ** (-config.head_dim / 2)
    plain = plain_inv_freq(theta, config.head_dim)
    if not all(map(math.isclose, plain, config.rope_inv_freq)):
        raise BenchError("the peers are compared on models without rotary scaling only")
    return {
        "architectures": [_CLASSES[config.architecture]],
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": round(theta, 3),
        "tie_word_embeddings": config.tied_embeddings,
        "attention_bias": config.qkv_bias,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
