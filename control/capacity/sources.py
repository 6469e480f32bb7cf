"""Where a model's description comes from: a config.json, a folder, a GGUF file, or our table."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from surgetank.control.capacity.architecture import Architecture
from surgetank.control.capacity.config_json import read_config
from surgetank.control.capacity.gguf_header import read_gguf
from surgetank.control.capacity.units import CapacityError, unknown

_LARGEST_JSON = 64 * 2**20


def table() -> list[dict[str, Any]]:
    """The models that the product knows by name, with their sources and published sizes."""
    text = resources.files("surgetank.control.capacity").joinpath("models.json").read_text("utf-8")
    entries: list[dict[str, Any]] = json.loads(text)
    return entries


def find_model(model: str) -> Architecture:
    """The architecture behind a path or a name; CapacityError says what is wrong with it."""
    path = Path(model)
    try:
        if path.is_dir():
            return _folder(path)
        if path.is_file():
            return _file(path)
    except OSError as error:
        raise CapacityError(f"{model[:80]}: cannot be read ({error.strerror})") from error
    if path.suffix in (".json", ".gguf") or model.startswith((".", "/", "~")):
        raise CapacityError(f"{model}: no such file or folder")
    return _named(model)


def _named(name: str) -> Architecture:
    wanted = name.rsplit("/", 1)[-1].lower()  # "organisation/model" is looked up by the model
    names = []
    for entry in table():
        own = [entry["name"], *entry["aliases"]]
        if wanted in (alias.lower() for alias in own):
            return read_config(entry["config"], entry["name"], entry["source"])
        names += own
    raise unknown("model", name, names)


def _file(path: Path) -> Architecture:
    if path.suffix == ".gguf":
        config, stored = read_gguf(path)
        architecture = read_config(config, path.stem, str(path))
        return replace(architecture, stored_bytes=stored)
    return read_config(read_object(path), path.parent.name or path.stem, str(path))


def _folder(path: Path) -> Architecture:
    config = path / "config.json"
    if not config.is_file():
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return _file(files[0])
        raise CapacityError(f"{path}: no config.json in it, and {len(files)} GGUF files")
    architecture = read_config(read_object(config), path.resolve().name, str(config))
    files = sorted(path.glob("*.safetensors"))
    if not files:
        return architecture
    return replace(architecture, stored_bytes=sum(_safetensors_bytes(file) for file in files))


def read_object(path: Path) -> Mapping[str, object]:
    """A JSON object from a file; CapacityError when it is something else."""
    if path.stat().st_size > _LARGEST_JSON:
        raise CapacityError(f"{path}: too large for a config.json")
    try:
        value = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CapacityError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise CapacityError(f"{path}: not a JSON object")
    return value


def _safetensors_bytes(path: Path) -> int:
    """Bytes of the tensors in a safetensors file: all but its eight-byte length and header."""
    with path.open("rb") as file:
        head = file.read(8)
    if len(head) < 8:
        raise CapacityError(f"{path}: not a safetensors file")
    data = path.stat().st_size - 8 - struct.unpack("<Q", head)[0]
    if data < 0:
        raise CapacityError(f"{path}: cut short")
    return int(data)
