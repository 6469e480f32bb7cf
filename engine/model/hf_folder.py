"""A model in a Hugging Face folder: config.json, safetensors (one or several), tokenizer.json."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from surgetank.engine.model.config import ModelConfig
from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.hf_config import parse_config
from surgetank.engine.model.tokenizer_files import TokenizerFiles

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class HfFolder:
    """Reads the JSON files at once, each weight when asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.resolve().name
        self._raw_config = _json(path / "config.json")
        self.config: ModelConfig = parse_config(path / "config.json", self._raw_config)
        self._shard_of = self._index()

    def tensor(self, name: str) -> torch.Tensor:
        file = self._shard_of.get(name)
        if file is None:
            raise ModelError(self.path, f"tensor {name} is missing")
        with _open(file) as shard:
            if name not in shard.keys():  # noqa: SIM118 (a handle, not a dict)
                raise ModelError(file, f"tensor {name} is missing")
            tensor: torch.Tensor = shard.get_tensor(name)
        if tensor.dtype not in FLOATS:
            raise ModelError(file, f"tensor {name} is stored as {tensor.dtype}: not supported")
        return tensor

    def tokenizer(self) -> TokenizerFiles:
        file = self.path / "tokenizer.json"
        text = _text(file)
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # tokenizers raises nothing narrower
            raise ModelError(file, f"not a tokenizer: {error}") from error
        settings = _optional_json(self.path / "tokenizer_config.json")
        bos, eos = _token(settings.get("bos_token")), _token(settings.get("eos_token"))
        return TokenizerFiles(
            tokenizer_json=text,
            chat_template=self._chat_template(settings),
            bos_token=bos,
            eos_token=eos,
            eos_token_ids=self._eos_ids(tokenizer, eos),
            add_bos=_adds_bos(tokenizer, bos, settings.get("add_bos_token")),
        )

    def _chat_template(self, settings: dict[str, Any]) -> str:
        file = self.path / "chat_template.jinja"
        if file.exists():
            return _text(file)
        template = settings.get("chat_template") or ""
        if isinstance(template, str):
            return template
        named = {entry["name"]: entry["template"] for entry in template}
        return str(named.get("default", ""))

    def _eos_ids(self, tokenizer: Tokenizer, eos: str) -> tuple[int, ...]:
        generation = _optional_json(self.path / "generation_config.json")
        found: list[int | None] = []
        for source in (generation, self._raw_config):
            value = source.get("eos_token_id")
            found += value if isinstance(value, list) else [value]
        found.append(tokenizer.token_to_id(eos))
        return tuple(dict.fromkeys(each for each in found if each is not None))

    def _index(self) -> dict[str, Path]:
        """Which file holds which weight."""
        if (index := self.path / INDEX).exists():
            weight_map = _json(index).get("weight_map")
            if not isinstance(weight_map, dict):
                raise ModelError(index, "no weight_map in it")
            return {name: self.path / file for name, file in weight_map.items()}
        file = self.path / WEIGHTS
        if not file.exists():
            raise ModelError(self.path, f"no {WEIGHTS} and no {INDEX} in it")
        with _open(file) as shard:
            return dict.fromkeys(shard.keys(), file)


def _adds_bos(tokenizer: Tokenizer, bos: str, setting: bool | None) -> bool:
    """What the tokenizer's own settings say, else what its post-processor does."""
    if setting is not None or not bos:
        return bool(setting)
    ids = tokenizer.encode("a").ids
    return bool(ids) and ids[0] == tokenizer.token_to_id(bos)


def _token(value: Any) -> str:
    """A special token is written as a string, an object with its content, or not at all."""
    return str(value["content"]) if isinstance(value, dict) else str(value or "")


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except FileNotFoundError as error:
        raise ModelError(file, "the file is missing; the index names it") from error
    except SafetensorError as error:
        raise ModelError(file, f"truncated or not a safetensors file: {error}") from error


def _text(file: Path) -> str:
    if not file.exists():
        raise ModelError(file, "the file is missing")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(file, f"not UTF-8 text: {error}") from error


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(file))
    except json.JSONDecodeError as error:
        raise ModelError(file, f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(file, "not a JSON object")
    return value


def _optional_json(file: Path) -> dict[str, Any]:
    return _json(file) if file.exists() else {}
