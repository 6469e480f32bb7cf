"""The head of a GGUF file: its metadata, read without loading the tensors.

Layout (ggml-org/ggml, docs/gguf.md): magic, version, tensor count, key count; then typed keys; then
one entry per tensor; then, aligned, the data. All little-endian.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from surgetank.control.capacity.units import CapacityError

_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

_MOST = 10_000_000  # entries of an array or a text's bytes: beyond it the file is damaged

# GGUF key without the architecture's prefix -> key of a config.json
_RENAMED = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
}
_FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "command-r2": "cohere2",
    "gpt-oss": "gpt_oss",
}


@dataclass(frozen=True, slots=True)
class Skipped:
    """An array that was not read: a vocabulary, or a value of its own for each layer."""

    length: int


def read_gguf(path: Path) -> tuple[dict[str, object], int]:
    """The metadata in a config.json's words, and the bytes of the weights.

    CapacityError when the file is not GGUF, is cut short, is a part of several, or holds an
    architecture that is not read from GGUF here.
    """
    with path.open("rb") as file:
        try:
            metadata, start = _header(file)
        except (struct.error, UnicodeDecodeError, OverflowError) as error:
            raise CapacityError(f"{path}: the GGUF header is damaged ({error})") from error
    if _number(metadata, "split.count", 1) > 1:
        raise CapacityError(f"{path}: one part of a split GGUF; merge the parts first")
    return _as_config(metadata, path), path.stat().st_size - start


def _as_config(metadata: dict[str, object], path: Path) -> dict[str, object]:
    architecture = str(metadata.get("general.architecture", ""))
    family = _FAMILIES.get(architecture)
    if family is None:
        raise CapacityError(
            f"{path}: GGUF architecture {architecture!r} is not read here; "
            f"known: {', '.join(_FAMILIES)}"
        )
    config: dict[str, object] = {"model_type": family}
    for key, name in _RENAMED.items():
        value = metadata.get(f"{architecture}.{key}")
        if isinstance(value, Skipped):
            raise CapacityError(
                f"{path}: {key} differs from layer to layer, which is not read here"
            )
        if value is not None:
            config[name] = value
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, Skipped):
        config.setdefault("vocab_size", tokens.length)
    config["tie_word_embeddings"] = metadata["has_output_head"] is False
    return config


def _number(metadata: dict[str, object], key: str, default: int) -> int:
    value = metadata.get(key, default)
    return value if isinstance(value, int) else default


def _header(file: BinaryIO) -> tuple[dict[str, object], int]:
    """The scalar metadata, and the offset at which the tensors' data begins."""
    if file.read(4) != b"GGUF":
        raise CapacityError(f"{file.name}: not a GGUF file")
    version, tensors, keys = struct.unpack("<IQQ", file.read(20))
    if not 2 <= version <= 3:
        raise CapacityError(f"{file.name}: GGUF version {version}; allowed: 2 to 3")
    metadata: dict[str, object] = {}
    for _ in range(keys):
        key = _text(file)
        metadata[key] = _value(file, *struct.unpack("<I", file.read(4)))
    head = False
    for _ in range(tensors):
        head |= _text(file) == "output.weight"
        (dimensions,) = struct.unpack("<I", file.read(4))
        _skip(file, dimensions, 8)
        _skip(file, 1, 12)  # type and offset
    metadata["has_output_head"] = head
    alignment = _number(metadata, "general.alignment", 32) or 32
    return metadata, math.ceil(file.tell() / alignment) * alignment


def _value(file: BinaryIO, kind: int) -> object:
    """One metadata value; an array is skipped."""
    if kind in _SCALARS:
        shape = struct.Struct(_SCALARS[kind])
        return shape.unpack(file.read(shape.size))[0]
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        raise CapacityError(f"{file.name}: GGUF value type {kind} is not known")
    inner, length = struct.unpack("<IQ", file.read(12))
    if inner in _SCALARS:
        _skip(file, length, struct.calcsize(_SCALARS[inner]))
        return Skipped(length)
    if length > _MOST:
        raise CapacityError(f"{file.name}: an array of {length} entries; the file is damaged")
    for _ in range(length):
        _value(file, inner)
    return Skipped(length)


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _MOST:
        raise CapacityError(f"{file.name}: a text of {length} bytes; the file is damaged")
    return file.read(length).decode("utf-8")


def _skip(file: BinaryIO, count: int, size: int) -> None:
    if count > _MOST:
        raise CapacityError(f"{file.name}: an array of {count} entries; the file is damaged")
    file.seek(count * size, 1)
