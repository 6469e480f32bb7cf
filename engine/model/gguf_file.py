"""A model in one GGUF file: metadata, and weights dequantised and in Hugging Face's order."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor, dequantize

from surgetank.engine.model.config import ModelConfig, plain_inv_freq, scaled_inv_freq
from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.gguf_tokenizer import read_tokenizer
from surgetank.engine.model.tokenizer_files import TokenizerFiles

MAGIC = b"GGUF"
ARCHITECTURES = ("llama", "qwen2")
TENSOR_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
LAYER_NAME = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
QUANT_SUFFIX = re.compile(r"[.-](?:I?Q\d\w*|B?F16|F32|MXFP4)$", re.IGNORECASE)


class GgufFile:
    """Opens and checks the metadata at once, maps the weights, reads each when asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = QUANT_SUFFIX.sub("", path.stem)
        reader = _read(path)
        self._meta = {name: field.contents() for name, field in reader.fields.items()}
        self._tensors: Mapping[str, ReaderTensor] = {t.name: t for t in reader.tensors}
        self.config = self._config()

    def tokenizer(self) -> TokenizerFiles:
        return read_tokenizer(self.path, self._meta)

    def tensor(self, name: str) -> torch.Tensor:
        value = self._dequantized(gguf_name(name))
        if self.config.architecture == "llama" and ".q_proj." in name:
            value = _halves(value, self.config.num_heads)
        elif self.config.architecture == "llama" and ".k_proj." in name:
            value = _halves(value, self.config.num_kv_heads)
        return torch.from_numpy(np.array(value, dtype=np.float32))  # a copy: the file is read-only

    def _dequantized(self, name: str) -> np.ndarray[Any, Any]:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelError(self.path, f"tensor {name} is missing")
        try:
            value: np.ndarray[Any, Any] = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            quant = tensor.tensor_type.name
            raise ModelError(
                self.path, f"tensor {name} has type {quant}, which cannot be dequantised"
            ) from error
        return value

    def _config(self) -> ModelConfig:
        architecture = self._meta.get("general.architecture")
        if architecture not in ARCHITECTURES:
            raise ModelError(
                self.path,
                f"unsupported architecture {architecture!r}; supported: {', '.join(ARCHITECTURES)}",
            )
        if self._meta.get("split.count", 1) > 1:
            raise ModelError(self.path, "one part of a split GGUF; merge the parts into one file")
        self._refuse(architecture, "expert_count", 0, "a mixture of experts")
        self._refuse(architecture, "rope.scaling.type", "none", "that rotary scaling")
        hidden, heads = self._int("embedding_length"), self._int("attention.head_count")
        head_dim = self._int("attention.key_length", hidden // heads)
        self._refuse(architecture, "attention.value_length", head_dim, "another size for V")
        self._refuse(architecture, "rope.dimension_count", head_dim, "a partial rotary embedding")
        context = self._int("context_length")
        if 0 < (window := self._int("attention.sliding_window", 0)) < context:
            raise ModelError(self.path, f"a sliding window of {window} tokens is not supported")
        embedding = self._tensors.get("token_embd.weight")
        if embedding is None:
            raise ModelError(self.path, "tensor token_embd.weight is missing")
        return ModelConfig(
            architecture=architecture,
            vocab_size=int(embedding.shape[-1]),
            hidden_size=hidden,
            intermediate_size=self._int("feed_forward_length"),
            num_layers=self._int("block_count"),
            num_heads=heads,
            num_kv_heads=self._int("attention.head_count_kv", heads),
            head_dim=head_dim,
            context_length=context,
            norm_eps=float(self._fact("attention.layer_norm_rms_epsilon")),
            rope_inv_freq=self._inv_freq(head_dim),
            tied_embeddings="output.weight" not in self._tensors,
            qkv_bias="blk.0.attn_q.bias" in self._tensors,
            output_bias="blk.0.attn_output.bias" in self._tensors,
        )

    def _inv_freq(self, head_dim: int) -> tuple[float, ...]:
        inv_freq = plain_inv_freq(float(self._fact("rope.freq_base", 10000.0)), head_dim)
        if "rope_freqs.weight" not in self._tensors:
            return inv_freq
        factors = self._dequantized("rope_freqs.weight").tolist()
        if len(factors) != len(inv_freq):
            raise ModelError(
                self.path, f"rope_freqs.weight has {len(factors)} values, not {len(inv_freq)}"
            )
        return scaled_inv_freq(inv_freq, factors)

    def _refuse(self, architecture: str, key: str, allowed: object, what: str) -> None:
        value = self._meta.get(f"{architecture}.{key}", allowed)
        if value != allowed:
            raise ModelError(self.path, f"{architecture}.{key} is {value}: {what} is not supported")

    def _int(self, key: str, default: int | None = None) -> int:
        value = self._fact(key, default)
        if not isinstance(value, int):  # some models give one value per layer
            raise ModelError(self.path, f"metadata {key} is {value!r}; expected one whole number")
        return value

    def _fact(self, key: str, default: object = None) -> Any:
        full = f"{self._meta['general.architecture']}.{key}"
        value = self._meta.get(full, default)
        if value is None:
            raise ModelError(self.path, f"metadata {full} is missing")
        return value


def gguf_name(name: str) -> str:
    """The name that GGUF gives to a weight that Hugging Face calls `name`."""
    layer = LAYER_NAME.fullmatch(name)
    if layer is not None:
        return f"blk.{layer[1]}.{TENSOR_NAMES[layer[2]]}.{layer[3]}"
    stem, _, kind = name.rpartition(".")
    return f"{TENSOR_NAMES[stem]}.{kind}"


def _halves(value: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undo GGUF's order for llama: rotary pairs lie side by side there, half a head apart here."""
    pairs = value.reshape(heads, -1, 2, *value.shape[1:])
    return pairs.swapaxes(1, 2).reshape(value.shape)


def _read(path: Path) -> GGUFReader:
    size = path.stat().st_size
    if size == 0:
        raise ModelError(path, "the file is empty")
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
    if magic != MAGIC:
        raise ModelError(path, f"not a GGUF file (it begins with {magic!r})")
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise ModelError(
            path, f"the file is truncated ({size} bytes), damaged or too new: {error}"
        ) from error
