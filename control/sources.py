"""Where settings come from: defaults, a preset, a TOML file, the environment, flags; later win.

Whatever is wrong ends in one ConfigError that names the key, the value, where it came from and
what is allowed.
"""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from surgetank.control.reference import (
    allowed,
    as_section,
    leaves,
    list_of_tables,
    members,
    secret,
    tables,
)

ENV_PREFIX = "SURGETANK_"
ModelT = TypeVar("ModelT", bound=BaseModel)


class ConfigError(Exception):
    """The user's settings are wrong; str() is the sentence to show, the exit code is 2."""


@dataclass(frozen=True, slots=True)
class Given:
    """One setting as it was given."""

    key: str
    value: Any
    source: str  # for the message: a file's name, an environment variable, a flag


def load(
    model: type[ModelT],
    *,
    preset: Iterable[Given] = (),
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Iterable[Given] = (),
) -> ModelT:
    """The whole configuration. Raises ConfigError; reads nothing but its arguments."""
    fields = _fields(model)
    given: dict[str, Given] = {}
    for source in (preset, _from_file(model, file), _from_env(env or {}, fields), flags):
        for item in source:
            _take(given, item, fields)
    for item in given.values():
        _check_known(item, fields)
        _check_finite(item, fields)
    tree: dict[str, Any] = {}
    for item in given.values():
        _plant(tree, item.key, item.value)
    for key, field in fields.items():
        if list_of_tables(field):
            _number(tree, key)
    try:
        return model.model_validate_json(json.dumps(tree, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(_sentence(error, given, fields)) from error


def from_text(model: type[BaseModel], key: str, text: str, source: str) -> Given:
    """A setting given as text (environment, --set): read as TOML where the key is no text."""
    field = _field(key, _fields(model))
    return Given(key, text if field is None else _parse(text, field), source)


def from_assignment(model: type[BaseModel], assignment: str) -> Given:
    """`section.key=value`, as --set takes it; raises ConfigError when it is not that."""
    key, equals, text = assignment.partition("=")
    if not equals or ("." not in key and key not in _fields(model)):
        raise ConfigError(f"--set {assignment!r} is not of the form section.key=value")
    return from_text(model, key.strip(), text.strip(), "--set")


def _from_file(model: type[BaseModel], file: Path | None) -> list[Given]:
    if file is None:
        return []
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {file}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"configuration file {file} is not TOML: {error}") from error
    return list(_flatten(model, tree, "", str(file)))


def _flatten(
    model: type[BaseModel], tree: dict[str, Any], prefix: str, source: str
) -> Iterable[Given]:
    for name, value in tree.items():
        field = model.model_fields.get(name)
        section = as_section(field) if field else None
        if section is None:
            yield Given(f"{prefix}{name}", value, source)
        elif isinstance(value, dict):
            yield from _flatten(section, value, f"{prefix}{name}.", source)
        else:
            raise ConfigError(f"{prefix}{name} is {value!r} ({source}); allowed: a table")


def _from_env(env: Mapping[str, str], fields: dict[str, FieldInfo]) -> list[Given]:
    """Variables with a double underscore. Others are not ours to judge: a cluster may inject
    names such as SURGETANK_PORT for a service called surgetank."""
    given = []
    for name, text in env.items():
        if name.startswith(ENV_PREFIX) and "__" in name:
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            field = _field(key, fields)
            given.append(Given(key, text if field is None else _parse(text, field), name))
    return given


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Every setting by its key; of a list of tables also those of its first: backends.0.url."""
    fields = dict(leaves(model))
    for key, field in list(fields.items()):
        if table := list_of_tables(field):
            fields |= {f"{key}.0.{name}": inner for name, inner in table.model_fields.items()}
    return fields


def _field(key: str, fields: dict[str, FieldInfo]) -> FieldInfo | None:
    """What all tables of a list have in common, their first has too."""
    return fields.get(re.sub(r"\.\d+\.", ".0.", key))


def _take(given: dict[str, Given], item: Given, fields: dict[str, FieldInfo]) -> None:
    """Note what is given. A whole list replaces what was said of its tables before."""
    field = fields.get(item.key)
    if field is None or list_of_tables(field) is None:
        given[item.key] = item
        return
    entries = item.value
    if not isinstance(entries, list) or not all(isinstance(e, dict) and e for e in entries):
        raise ConfigError(_one(item, field))
    for key in [key for key in given if key.startswith(f"{item.key}.")]:
        del given[key]
    for number, entry in enumerate(entries):
        for name, value in entry.items():
            key = f"{item.key}.{number}.{name}"
            given[key] = Given(key, value, item.source)


def _parse(text: str, field: FieldInfo) -> Any:
    kinds = members(field.annotation)
    if type(None) in kinds and text in ("", "none"):
        return None
    if all(_is_text(kind) for kind in kinds):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # validation says what is allowed


def _is_text(kind: Any) -> bool:
    if kind in (str, Path, SecretStr, type(None)) or get_origin(kind) is Literal:
        return True
    return isinstance(kind, type) and issubclass(kind, str | Enum)


def _check_known(item: Given, fields: dict[str, FieldInfo]) -> None:
    if _field(item.key, fields) is not None:
        return
    near = difflib.get_close_matches(item.key, fields, n=1)
    section = item.key.split(".")[0]
    siblings = [key for key in fields if key.startswith(f"{section}.")]
    if near:
        hint = f"did you mean {near[0]}?"
    elif siblings:
        hint = f"allowed in {section}: {', '.join(siblings)}"
    else:
        hint = f"sections: {', '.join(dict.fromkeys(key.split('.')[0] for key in fields))}"
    raise ConfigError(f"{item.key} ({item.source}) is not a setting; {hint}")


def _check_finite(item: Given, fields: dict[str, FieldInfo]) -> None:
    field = _field(item.key, fields)
    if field and isinstance(item.value, float) and not math.isfinite(item.value):
        raise ConfigError(_one(item, field))


def _plant(tree: dict[str, Any], key: str, value: Any) -> None:
    *sections, name = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[name] = value


def _number(tree: dict[str, Any], key: str) -> None:
    """What was planted by number becomes the list that it is."""
    *sections, name = key.split(".")
    for section in sections:
        tree = tree.get(section, {})
    tables = tree.get(name, {})
    for number in map(str, range(len(tables))):
        if number not in tables:
            raise ConfigError(f"{key}.{number} is not given, but {key}.{max(tables, key=int)} is")
    if tables:
        tree[name] = [tables[number] for number in sorted(tables, key=int)]


def _sentence(error: ValidationError, given: dict[str, Given], fields: dict[str, FieldInfo]) -> str:
    """The first fault in words; a rule between several settings speaks for itself."""
    fault = error.errors()[0]
    path = [str(part) for part in fault["loc"]]
    for length in range(len(path), 0, -1):
        item = given.get(".".join(path[:length]))
        field = None if item is None else _field(item.key, fields)
        if item is not None and field is not None:
            said = fault["msg"].removeprefix("Value error, ")
            own_rule = f" ({said})" if fault["type"] == "value_error" else ""
            if tables(field.annotation):  # which of them, and what is wrong with it
                own_rule = f" ({'.'.join(path[length:])}: {said})"
            return _one(item, field) + own_rule
    message = fault["msg"].removeprefix("Value error, ")
    return f"{'.'.join(path)}: {message}" if path else message


def _one(item: Given, field: FieldInfo) -> str:
    value = json.dumps(item.value, default=str) if item.value is not None else "unset"
    if secret(field):
        value = "a secret of another kind"
    return f"{item.key} is {value} ({item.source}); allowed: {allowed(field)}"
