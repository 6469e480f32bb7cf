"""Tiny models that tests write to disk: Hugging Face folders and GGUF files of the same weights."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = "the quick brown fox jumps over the lazy dog 0123456789 " * 4
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 0,
    "bos_token_id": 1,
}


def reference_model(kind: str = "Llama", seed: int = 0, **changes: Any) -> Any:
    """A transformers model with random weights large enough that logits differ clearly."""
    config = getattr(transformers, f"{kind}Config")(**(SIZES | changes))
    torch.manual_seed(seed)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Logits [len(tokens), vocab] by transformers."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def small_tokenizer() -> Tokenizer:
    """A byte-level BPE with <eos> = 0 and <bos> = 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [TEXT],
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<eos>", "<bos>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def write_folder(path: Path, model: Any, shard_size: str = "1GB", **settings: Any) -> Path:
    """A complete Hugging Face folder; `settings` go into tokenizer_config.json."""
    model.save_pretrained(path, max_shard_size=shard_size)
    (path / "tokenizer.json").write_text(small_tokenizer().to_str())
    base = {"bos_token": "<bos>", "eos_token": {"content": "<eos>"}, "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(base | settings))
    return path


def change_json(file: Path, **changes: Any) -> None:
    """Set keys of a JSON file; None removes one."""
    value = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in value.items() if v is not None}))


def write_gguf(
    path: Path,
    model: Any,
    architecture: str = "llama",
    quant: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    metadata: dict[str, int | str] | None = None,
    drop: str = "",
    replace: dict[str, np.ndarray[Any, Any]] | None = None,
) -> Path:
    """The model as llama.cpp's converter writes it, matrices quantised; the tensor `drop` is left
    out, those in `replace` are written as given."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_tokenizer(writer)
    for key, fact in (metadata or {}).items():
        if isinstance(fact, str):
            writer.add_string(key, fact)
        else:
            writer.add_uint32(key, fact)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    tensors = {
        str(names.get_name(name, try_suffixes=(".weight", ".bias"))): _as_stored(
            name, tensor.numpy(), architecture, config.hidden_size // config.num_attention_heads
        )
        for name, tensor in model.state_dict().items()
    }
    if config.tie_word_embeddings:
        del tensors["output.weight"]
    for name, value in (tensors | (replace or {})).items():
        if name == drop:
            continue
        kind = quant if value.ndim == 2 else gguf.GGMLQuantizationType.F32
        if value.dtype == np.float32:
            writer.add_tensor(name, gguf.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _as_stored(
    name: str, value: np.ndarray[Any, Any], architecture: str, head_dim: int
) -> np.ndarray[Any, Any]:
    rotated = architecture == "llama" and (".q_proj" in name or ".k_proj" in name)
    return _pairs(value, head_dim) if rotated else value


def _pairs(value: np.ndarray[Any, Any], head_dim: int) -> np.ndarray[Any, Any]:
    """llama.cpp's order of q and k: entry i of a head's first half beside entry i of its second."""
    heads = np.split(value, len(value) // head_dim)
    half = head_dim // 2
    order = [place for i in range(half) for place in (i, i + half)]
    return np.concatenate([head[order] for head in heads])


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    described = json.loads(small_tokenizer().to_str())["model"]
    vocabulary = sorted(described["vocab"], key=described["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3, 3] + [1] * (len(vocabulary) - 2))
    writer.add_token_merges([" ".join(pair) for pair in described["merges"]])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template(TEMPLATE)
