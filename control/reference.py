"""What a setting allows, in words: for error messages and for the configuration reference."""

import enum
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, IPvAnyNetwork, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

Leaf = tuple[str, FieldInfo]  # dotted key and field
_UNIONS = (Union, types.UnionType)
_WORDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    SecretStr: "text",
    Path: "path",
    IPvAnyNetwork: "network (10.0.0.0/8) or address",
}

PREAMBLE = """# Configuration reference

Generated from the models by `surgetank docs config`; a test keeps it current.

A setting comes from, later ones winning: its default, the preset given by `--preset` (presets.md),
the TOML file given by `--config`, the environment as `SURGETANK_SECTION__KEY`, and `--set
section.key=value` or a flag. In the last two `none` unsets what may be unset. A list of tables is
written as `[[backends]]` in the file and by number elsewhere, from 0: `SURGETANK_BACKENDS__0__URL`,
`--set backends.0.url=...`; one that is given whole replaces what was said before. A value that is
not allowed stops the start with exit code 2 and one sentence."""


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[Leaf]:
    """Every setting below a model, in the order of declaration."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        section = as_section(field)
        if section is None:
            yield key, field
        else:
            yield from leaves(section, f"{key}.")


def as_section(field: FieldInfo) -> type[BaseModel] | None:
    """The model behind a field that is a section of settings, else None."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type alone."""
    return get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)


def tables(annotation: Any) -> list[type[BaseModel]]:
    """The models of a setting that is a list or a table of tables; none for any other."""
    inner = get_args(annotation)
    return [each for each in inner if isinstance(each, type) and issubclass(each, BaseModel)]


def list_of_tables(field: FieldInfo) -> type[BaseModel] | None:
    """The model of each entry of a setting that is a list of tables, else None."""
    inner = tables(field.annotation)
    return inner[0] if inner and get_origin(field.annotation) is tuple else None


def secret(field: FieldInfo) -> bool:
    """Whether its value, or a part of it, may be shown nowhere."""
    kinds = [field.annotation, *members(field.annotation)]
    parts = [part for table in tables(field.annotation) for part in table.model_fields.values()]
    return SecretStr in kinds or any(secret(part) for part in parts)


def allowed(field: FieldInfo) -> str:
    """The allowed values in words: "whole number, 1 to 4096"."""
    kinds = members(field.annotation)
    words = " or ".join(_kind(kind) for kind in kinds if kind is not type(None))
    bounds = _bounds(field)
    said = f"{words}, {bounds}" if bounds else words
    return f"{said}; or none" if type(None) in kinds else said


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(annotation))
    if get_origin(annotation) in (list, tuple):
        inner = [arg for arg in get_args(annotation) if arg is not Ellipsis]
        return "list of " + " or ".join(dict.fromkeys(_kind(arg) for arg in inner))
    if get_origin(annotation) is dict:
        return f"NAME = {_kind(get_args(annotation)[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "{" + ", ".join(annotation.model_fields) + "}"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "one of " + ", ".join(str(choice.value) for choice in annotation)
    return _WORDS.get(annotation, str(annotation))


def _bounds(field: FieldInfo) -> str:
    """The field's limits: "1 to 8", "above 0 and up to 1", "at least 1"."""
    low = high = ""
    low_open = False
    other = []
    for rule in field.metadata:
        match rule:
            case annotated_types.Ge(ge=value):
                low = str(value)
            case annotated_types.Gt(gt=value):
                low, low_open = str(value), True
            case annotated_types.Le(le=value):
                high = f"to {value}"
            case annotated_types.Lt(lt=value):
                high = f"and below {value}"
            case annotated_types.MinLen(min_length=value):
                other.append("not empty" if value == 1 else f"length at least {value}")
            case annotated_types.MaxLen(max_length=value):
                other.append(f"length at most {value}")
            case _ if pattern := getattr(rule, "pattern", None):
                other.append(f"matching {pattern}")
    return ", ".join(filter(None, [_range(low, low_open, high), *other]))


def _range(low: str, low_open: bool, high: str) -> str:
    if not low:
        return high.replace("to ", "up to ").removeprefix("and ")
    if low_open:
        return f"above {low} {high.replace('to ', 'and up to ')}".strip()
    return f"{low} {high}" if high else f"at least {low}"


def markdown(model: type[BaseModel]) -> str:
    """The configuration reference: one table per section."""
    parts = [PREAMBLE]
    for name, field in model.model_fields.items():
        listed = list_of_tables(field)
        section = listed or as_section(field)
        if section is None:
            continue
        key = f"{name}.0" if listed else name
        parts.append(f"\n## {name}\n\n{_first_line(section)}\n")
        parts.append("| key | default | allowed | meaning |\n|---|---|---|---|")
        parts.extend(_row(f"{key}.{leaf}", inner) for leaf, inner in leaves(section))
    return "\n".join(parts) + "\n"


def _first_line(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").strip().splitlines()[0] if section.__doc__ else ""


def _row(key: str, field: FieldInfo) -> str:
    cells = [f"`{key}`", _default(field), allowed(field), field.description or ""]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    factory: Any = field.default_factory
    if factory is not None:  # depends on the machine: say how, so that the page is the same on all
        return str(factory.__doc__ or "computed").strip().splitlines()[0]
    value = field.default
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is PydanticUndefined:
        return "(required)"
    if value is None:
        return "none"
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "(empty)" if value in ("", (), {}) else f"`{value}`"
