"""The forward pass equals transformers', however the work is cut, mixed and paged."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.model.checkpoints import reference_logits, reference_model, write_folder
from tests.engine.model.driver import Driver, Paged

from surgetank.engine.model.load import load

CPU = torch.device("cpu")
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "one head each": ("Llama", {"num_key_value_heads": 4}),
    "wide heads": ("Llama", {"head_dim": 32}),
    "biased": ("Llama", {"attention_bias": True}),
    "tied": ("Llama", {"tie_word_embeddings": True}),
    "llama3 scaling": ("Llama", {"rope_parameters": LLAMA3}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
}


def tokens(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(320), k=count)


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference relative to the largest logit."""
    return float((ours.float() - theirs).abs().max() / theirs.abs().max())


@pytest.fixture(scope="module")
def reference() -> Any:
    return reference_model()


@pytest.fixture(scope="module")
def folder(reference: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", reference)


@pytest.fixture
def driver(folder: Path) -> Driver:
    return Driver(load(folder, CPU, torch.float32).model, num_blocks=64)


@pytest.mark.parametrize("name", FAMILY)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    kind, changes = FAMILY[name]
    theirs = reference_model(kind, **changes)
    model = load(write_folder(tmp_path / "model", theirs), CPU, torch.float32).model
    prompt = tokens(150)
    ours = Driver(model, num_blocks=12).step([(Paged(), prompt)], all_positions=True)
    assert distance(ours, reference_logits(theirs, prompt)) < 1e-5


def test_bfloat16_stays_close(folder: Path, reference: Any) -> None:
    prompt = tokens(100)
    driver = Driver(load(folder, CPU, torch.bfloat16).model, num_blocks=8)
    ours = driver.step([(Paged(), prompt)], all_positions=True)
    assert ours.dtype == torch.bfloat16
    assert distance(ours, reference_logits(reference, prompt)) < 0.05


@pytest.mark.parametrize("chunk", [1, 7, 16, 33])
def test_a_prompt_in_chunks_equals_the_whole(driver: Driver, reference: Any, chunk: int) -> None:
    prompt, sequence = tokens(100), Paged()
    parts = [prompt[start : start + chunk] for start in range(0, len(prompt), chunk)]
    ours = torch.cat([driver.step([(sequence, part)], all_positions=True) for part in parts])
    assert distance(ours, reference_logits(reference, prompt)) < 1e-5


def test_one_batch_of_everything_equals_each_alone(driver: Driver, reference: Any) -> None:
    """Decodes of very different lengths beside whole prompts and later chunks."""
    contexts = [tokens(n, seed=n) for n in (1, 3, 16, 17, 60, 90, 200)]
    later = [tokens(n, seed=n) for n in (40, 41, 120)]
    fresh = [tokens(n, seed=n) for n in (2, 5, 30, 31, 100)]
    running = [(Paged(), context) for context in contexts]
    driver.step(running)
    chunked = [(Paged(), prompt[:25]) for prompt in later]
    driver.step(chunked)
    work = [(sequence, [7]) for sequence, _ in running]
    work += [(sequence, prompt[25:]) for (sequence, _), prompt in zip(chunked, later)]
    work += [(Paged(), prompt) for prompt in fresh]
    ours = driver.step(work)
    alone = [[*context, 7] for context in contexts] + later + fresh
    theirs = torch.stack([reference_logits(reference, prompt)[-1] for prompt in alone])
    assert distance(ours, theirs) < 1e-5


def test_a_prompt_of_one_token_may_stand_among_the_chunks(driver: Driver, reference: Any) -> None:
    work = [(Paged(), tokens(20)), (Paged(), [5]), (Paged(), tokens(9))]
    theirs = [reference_logits(reference, prompt)[-1] for _, prompt in work]
    assert distance(driver.step(work), torch.stack(theirs)) < 1e-5


def test_a_chunk_that_samples_nothing_gives_no_logits(driver: Driver) -> None:
    batch = driver.batch([(Paged(), tokens(20))], all_positions=False)
    batch = dataclasses.replace(batch, sample_at=batch.sample_at[:0])
    with torch.inference_mode():
        assert driver.model(batch, driver.cache).shape == (0, 320)


@pytest.mark.parametrize("block_size", [8, 32, 256])
def test_any_block_size(folder: Path, reference: Any, block_size: int) -> None:
    driver = Driver(load(folder, CPU, torch.float32).model, num_blocks=40, block_size=block_size)
    prompts = [tokens(n, seed=n) for n in (5, 31, 100)]
    outputs = driver.greedy(prompts, steps=12)
    for prompt, output in zip(prompts, outputs):
        theirs = reference_logits(reference, prompt + output[:-1])[len(prompt) - 1 :]
        assert output == theirs.argmax(-1).tolist()
