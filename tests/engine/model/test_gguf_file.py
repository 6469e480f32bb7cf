"""GGUF files written by the test load with the weights of the model they came from."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tests.engine.model.checkpoints import (
    TEMPLATE,
    reference_logits,
    reference_model,
    small_tokenizer,
    write_gguf,
)
from tests.engine.model.driver import Driver, Paged
from tokenizers import Tokenizer

from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.load import load

CPU = torch.device("cpu")
Quant = gguf.GGMLQuantizationType
PROMPT = list(range(3, 90))


@pytest.fixture(scope="module")
def reference() -> Any:
    return reference_model()


def logits(path: Path) -> torch.Tensor:
    model = load(path, CPU, torch.float32).model
    return Driver(model, num_blocks=8).step([(Paged(), PROMPT)], all_positions=True)


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("architecture", "kind"), [("llama", "Llama"), ("qwen2", "Qwen2")])
def test_logits_equal_transformers(
    architecture: str, kind: str, tied: bool, tmp_path: Path
) -> None:
    model = reference_model(kind, tie_word_embeddings=tied)
    path = write_gguf(tmp_path / "tiny.gguf", model, architecture)
    assert distance(logits(path), reference_logits(model, PROMPT)) < 1e-5


@pytest.mark.parametrize(
    ("quant", "tolerance"),
    [(Quant.F16, 0.01), (Quant.BF16, 0.02), (Quant.Q8_0, 0.03), (Quant.Q4_1, 0.5)],
)
def test_quantised_weights_are_near_the_originals(
    quant: Any, tolerance: float, reference: Any, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference, quant=quant)
    assert distance(logits(path), reference_logits(reference, PROMPT)) < tolerance


def test_tokenizer_and_facts(reference: Any, tmp_path: Path) -> None:
    loaded = load(write_gguf(tmp_path / "tiny-Q4_K_M.gguf", reference), CPU, torch.float32)
    text = "the quick brown fox,  42 ünïcode 🚰"
    ours = Tokenizer.from_str(loaded.tokenizer.tokenizer_json)
    assert ours.encode(text).ids == small_tokenizer().encode(text).ids
    assert loaded.name == "tiny"
    assert loaded.tokenizer.chat_template == TEMPLATE
    assert (loaded.tokenizer.bos_token, loaded.tokenizer.eos_token) == ("<bos>", "<eos>")
    assert loaded.tokenizer.eos_token_ids == (0,)


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(path, CPU, torch.float32)
    assert caught.value.path == path
    return str(caught.value)


@pytest.mark.parametrize("kept", [4, 30, 2000, 0.5, 0.99])
def test_a_truncated_file_is_refused(kept: float, reference: Any, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept if kept > 1 else kept * len(data))])
    assert "truncated" in refusal(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.touch()
    assert refusal(path) == f"{path}: the file is empty"


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a model")
    assert refusal(path) == f"{path}: not a GGUF file (it begins with b'not ')"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"llama.expert_count": 8}, "llama.expert_count is 8: a mixture of experts"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type is yarn"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count is 8: a partial rotary"),
        ({"llama.attention.sliding_window": 64}, "sliding window of 64"),
        ({"split.count": 2}, "one part of a split GGUF"),
    ],
)
def test_what_the_graph_lacks_is_refused(
    metadata: dict[str, Any], reason: str, reference: Any, tmp_path: Path
) -> None:
    assert reason in refusal(write_gguf(tmp_path / "tiny.gguf", reference, metadata=metadata))


def test_an_unsupported_architecture_is_refused(reference: Any, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference, architecture="gemma")
    assert "unsupported architecture 'gemma'; supported: llama, qwen2" in refusal(path)


def test_a_missing_tensor_is_named(reference: Any, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", reference, drop="blk.1.ffn_up.weight")
    assert refusal(path).endswith("tensor blk.1.ffn_up.weight is missing")


def test_a_wrong_shape_is_named(reference: Any, tmp_path: Path) -> None:
    reference = reference_model(intermediate_size=64)
    reference.config.intermediate_size = 96
    message = refusal(write_gguf(tmp_path / "tiny.gguf", reference))
    assert "mlp.gate_proj.weight has shape [64, 64]; its config asks for [96, 64]" in message


def test_a_type_that_cannot_be_dequantised_is_named(reference: Any, tmp_path: Path) -> None:
    whole = {"blk.0.attn_norm.weight": np.ones(64, dtype=np.int8)}
    message = refusal(write_gguf(tmp_path / "tiny.gguf", reference, replace=whole))
    assert "tensor blk.0.attn_norm.weight has type I8, which cannot be dequantised" in message


def test_long_context_factors_divide_the_frequencies(reference: Any, tmp_path: Path) -> None:
    factors = np.array([1, 1, 2, 2, 4, 4, 8, 8], dtype=np.float32)
    plain = load(write_gguf(tmp_path / "plain.gguf", reference), CPU, torch.float32).config
    path = write_gguf(tmp_path / "long.gguf", reference, replace={"rope_freqs.weight": factors})
    scaled = load(path, CPU, torch.float32).config.rope_inv_freq
    assert scaled == tuple(f / by for f, by in zip(plain.rope_inv_freq, factors.tolist()))
    path = write_gguf(tmp_path / "bad.gguf", reference, replace={"rope_freqs.weight": factors[:3]})
    assert "rope_freqs.weight has 3 values, not 8" in refusal(path)
