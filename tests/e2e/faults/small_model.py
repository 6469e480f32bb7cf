"""A model of a few thousand random weights on disk: the real engine's steps take a millisecond."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.fakes import CHATML, tiny_tokenizer

from surgetank.engine.model.config import weight_shapes
from surgetank.engine.model.hf_config import parse_config

CONTEXT = 2048


def write_small_model(folder: Path) -> Path:
    """A Hugging Face folder named `small`, which says anything at all."""
    path = folder / "small"
    path.mkdir()
    tokenizer = tiny_tokenizer()
    config = {
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(tokenizer.to_str())
    settings = {
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "chat_template": CHATML,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    source = torch.Generator().manual_seed(0)
    shapes = weight_shapes(parse_config(path / "config.json", config))
    weights = {name: torch.randn(shape, generator=source) * 0.4 for name, shape in shapes.items()}
    save_file(weights, path / "model.safetensors")
    return path
