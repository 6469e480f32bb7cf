"""Hugging Face folders: what loads, and the one sentence for each folder that does not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine.model.checkpoints import (
    TEMPLATE,
    change_json,
    reference_logits,
    reference_model,
    small_tokenizer,
    write_folder,
)
from tests.engine.model.driver import Driver, Paged
from tokenizers.processors import TemplateProcessing

from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.load import load
from surgetank.engine.model.tokenizer_files import TokenizerFiles

CPU = torch.device("cpu")
PROMPT = list(range(3, 90))


@pytest.fixture(scope="module")
def reference() -> Any:
    return reference_model()


@pytest.fixture
def folder(reference: Any, tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny", reference)


def tokenizer_of(folder: Path) -> TokenizerFiles:
    return load(folder, CPU, torch.float32).tokenizer


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(folder, CPU, torch.float32)
    return str(caught.value)


def test_a_sharded_folder_loads(reference: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", reference, shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    model = load(folder, CPU, torch.float32).model
    ours = Driver(model, num_blocks=8).step([(Paged(), PROMPT)], all_positions=True)
    theirs = reference_logits(reference, PROMPT)
    assert float((ours - theirs).abs().max() / theirs.abs().max()) < 1e-5


def test_tokenizer_and_name(folder: Path) -> None:
    loaded = load(folder, CPU, torch.float32)
    assert loaded.name == "tiny"
    assert loaded.tokenizer == TokenizerFiles(
        tokenizer_json=(folder / "tokenizer.json").read_text(),
        chat_template=TEMPLATE,
        bos_token="<bos>",
        eos_token="<eos>",
        eos_token_ids=(0,),
        add_bos=False,
    )


def test_every_source_of_end_tokens_counts(folder: Path) -> None:
    change_json(folder / "generation_config.json", eos_token_id=[7, 8])
    change_json(folder / "config.json", eos_token_id=9)
    assert tokenizer_of(folder).eos_token_ids == (7, 8, 9, 0)


def test_a_list_of_chat_templates_and_a_template_file(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    change_json(folder / "tokenizer_config.json", chat_template=named)
    assert tokenizer_of(folder).chat_template == "D"
    (folder / "chat_template.jinja").write_text("J")
    assert tokenizer_of(folder).chat_template == "J"


@pytest.mark.parametrize(("setting", "expected"), [(None, True), (False, False), (True, True)])
def test_add_bos_follows_the_setting_then_the_post_processor(
    folder: Path, setting: bool | None, expected: bool
) -> None:
    tokenizer = small_tokenizer()
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    change_json(folder / "tokenizer_config.json", add_bos_token=setting)
    assert tokenizer_of(folder).add_bos is expected


def test_older_configs_write_rope_theta_at_the_top(folder: Path) -> None:
    before = load(folder, CPU, torch.float32).config
    change_json(folder / "config.json", rope_parameters=None, rope_theta=10000.0)
    assert load(folder, CPU, torch.float32).config == before
    change_json(folder / "config.json", rope_theta=500.0)
    assert load(folder, CPU, torch.float32).config.rope_inv_freq[1] == 500.0 ** (-2 / 16)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "gemma"}, "unsupported architecture 'gemma'; supported: llama, mistral"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias is set"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is set"),
        ({"model_type": "mistral", "sliding_window": 64}, "sliding_window is 64"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not 1"),
        ({"rope_scaling": {"type": "yarn"}, "rope_parameters": None}, "rope scaling 'yarn'"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'; expected a whole number above 0"),
        ({"vocab_size": None}, "vocab_size is None"),
        ({"num_hidden_layers": 3}, "tensor model.layers.2.input_layernorm.weight is missing"),
        ({"intermediate_size": 64}, "has shape [96, 64]; its config asks for [64, 64]"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    folder: Path, changes: dict[str, Any], reason: str
) -> None:
    change_json(folder / "config.json", **changes)
    message = refusal(folder)
    assert reason in message
    assert str(folder) in message


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("config.json", "config.json: the file is missing"),
        ("tokenizer.json", "tokenizer.json: the file is missing"),
        ("model.safetensors", "no model.safetensors and no model.safetensors.index.json in it"),
    ],
)
def test_a_missing_file_is_named(folder: Path, missing: str, reason: str) -> None:
    (folder / missing).unlink()
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.json", b"{not json", "config.json: not valid JSON"),
        ("config.json", b"[]", "config.json: not a JSON object"),
        ("config.json", b"\xff\xfe", "config.json: not UTF-8 text"),
        ("tokenizer.json", b"{}", "tokenizer.json: not a tokenizer"),
        ("model.safetensors", b"", "model.safetensors: truncated or not a safetensors file"),
        ("model.safetensors.index.json", b"{}", "index.json: no weight_map in it"),
    ],
)
def test_a_broken_file_is_named(folder: Path, file: str, content: bytes, reason: str) -> None:
    (folder / file).write_bytes(content)
    assert reason in refusal(folder)


@pytest.mark.parametrize("share", [0.001, 0.5, 0.99])
def test_truncated_weights_are_refused(folder: Path, share: float) -> None:
    file = folder / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    assert "truncated or not a safetensors file" in refusal(folder)


def test_a_missing_shard_is_named(reference: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", reference, shard_size="100KB")
    shard = max(folder.glob("*.safetensors"))
    shard.unlink()
    assert f"{shard}: the file is missing; the index names it" in refusal(folder)


def test_whole_number_weights_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"].to(torch.int8)
    save_file(weights, folder / "model.safetensors")
    assert "tensor model.norm.weight is stored as torch.int8: not supported" in refusal(folder)


def test_an_empty_folder_and_a_wrong_path(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path / 'config.json'}: the file is missing"
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: no such file or folder"
