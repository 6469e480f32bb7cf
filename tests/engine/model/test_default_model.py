"""The default model, read from its GGUF file, decodes token for token as transformers does."""

from typing import Any

import pytest
import torch
import transformers
from tests.engine.model.checkpoints import reference_logits
from tests.engine.model.driver import Driver, Paged
from tokenizers import Tokenizer

from surgetank.engine.model.config import weight_shapes
from surgetank.engine.model.load import LoadedModel, load, open_checkpoint
from surgetank.engine.model.locate import resolve

pytestmark = pytest.mark.model

STEPS = 64
LENGTHS = (1, 2, 5, 9, 16, 17, 31, 48, 100, 160, 300, 600)
PASSAGES = (
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return fibonacci(",
    "The pressure in the pipe rose, and the water that could not pass the turbine climbed into ",
    "Zürich, 3. März 2024: «Où est la gare ?» — “Dort drüben”, sagte sie. 你好，世界！ 🚰 ",
    '{"model": "default", "messages": [{"role": "user", "content": "hello"}], "n": 2}\n',
)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(resolve(None), torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def tokenizer(loaded: LoadedModel) -> Tokenizer:
    return Tokenizer.from_str(loaded.tokenizer.tokenizer_json)


@pytest.fixture(scope="module")
def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    text = "".join(PASSAGES)
    ids = [tokenizer.encode(passage + text * 5).ids for passage in PASSAGES]
    return [ids[i % len(ids)][:length] for i, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def reference() -> Any:
    """transformers' own Llama with the same dequantised weights."""
    checkpoint = open_checkpoint(resolve(None))
    facts = checkpoint.config
    config = transformers.LlamaConfig(
        vocab_size=facts.vocab_size,
        hidden_size=facts.hidden_size,
        intermediate_size=facts.intermediate_size,
        num_hidden_layers=facts.num_layers,
        num_attention_heads=facts.num_heads,
        num_key_value_heads=facts.num_kv_heads,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model = model.to_empty(device="cpu")
    weights = {name: checkpoint.tensor(name) for name in weight_shapes(facts)}
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.train(False)
    return model


def test_facts(loaded: LoadedModel) -> None:
    assert loaded.name == "SmolLM2-135M-Instruct"
    assert loaded.config.parameters() == 134_515_008
    assert loaded.config.context_length == 8192
    assert loaded.config.kv_bytes_per_token(2) == 2 * 30 * 3 * 64 * 2
    assert loaded.tokenizer.eos_token == "<|im_end|>"
    assert loaded.tokenizer.eos_token_ids == (2,)
    assert not loaded.tokenizer.add_bos
    assert "<|im_start|>" in loaded.tokenizer.chat_template


def test_it_knows_the_capital_of_france(loaded: LoadedModel, tokenizer: Tokenizer) -> None:
    """Independent of the reference: its weights come through the same reader."""
    prompt = tokenizer.encode(PASSAGES[0]).ids
    (output,) = Driver(loaded.model, num_blocks=8).greedy([prompt], steps=8)
    assert "The capital of France is Paris." in tokenizer.decode(output)


@pytest.mark.slow
def test_greedy_tokens_and_logits_equal_the_reference(
    loaded: LoadedModel, prompts: list[list[int]], reference: Any
) -> None:
    """All prompts in one busy batch. Each of our tokens must be the reference's own choice after
    the same tokens, so by induction the two greedy sequences are the same."""
    outputs = Driver(loaded.model, num_blocks=150).greedy(prompts, STEPS)
    for prompt, output in zip(prompts, outputs):
        fed = prompt + output[:-1]
        theirs = reference_logits(reference, fed)
        assert output == theirs[len(prompt) - 1 :].argmax(-1).tolist()
        ours = Driver(loaded.model, num_blocks=50).step([(Paged(), fed)], all_positions=True)
        assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-3


@pytest.mark.slow
def test_alone_equals_in_a_batch(loaded: LoadedModel, prompts: list[list[int]]) -> None:
    together = Driver(loaded.model, num_blocks=150).greedy(prompts[:8], STEPS)
    for prompt, expected in list(zip(prompts, together))[::3]:
        assert Driver(loaded.model, num_blocks=50).greedy([prompt], STEPS) == [expected]
