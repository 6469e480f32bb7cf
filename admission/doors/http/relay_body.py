"""What the gate must know of a body that is the engine's to understand, and how it is changed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from surgetank.admission.outcome import invalid
from surgetank.telemetry.vocabulary import Reason

_TEXTS = ("messages", "prompt", "input", "system", "instructions", "tools", "text")
_MOST_CHOICES = 1_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """One path: the names of its field for the output's length, the preferred one first."""

    limits: tuple[str, ...]  # none: it produces no tokens

    def without(self, names: Collection[str]) -> "Kind":
        """As an engine has it that passes over those names."""
        return Kind(tuple(name for name in self.limits if name not in names)) if names else self


KINDS: Mapping[str, Kind] = {
    "/v1/chat/completions": Kind(("max_completion_tokens", "max_tokens")),
    "/v1/completions": Kind(("max_tokens",)),
    "/v1/responses": Kind(("max_output_tokens",)),
    "/v1/messages": Kind(("max_tokens",)),
    "/v1/messages/count_tokens": Kind(()),
    "/v1/embeddings": Kind(()),
}


class Reading(msgspec.Struct, frozen=True):
    """The fields that matter. Anything else is left to the engine, and so is every mistake."""

    model: str  # "": the client names none
    stream: bool
    n: int
    limits: Mapping[str, int]  # what the client sets, by name
    exact: bool
    characters: int  # of text in the prompt
    token_ids: int  # given as such
    beginning: str = ""  # of the prompt: the first characters of its text, or of its token ids

    @property
    def estimated(self) -> bool:
        """Whether the prompt's length is: not if all of it is token ids."""
        return self.characters > 0 or not self.token_ids

    def max_tokens(self, kind: Kind) -> int | None:
        """The end that counts; None: the client sets none."""
        return next((self.limits[name] for name in kind.limits if name in self.limits), None)


def read_body(body: bytes, kind: Kind, beginning: int = 0) -> Reading:
    """Refused when it is no JSON object, or names no model by its name. `beginning`: how many
    characters of the prompt to keep."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(Reason.BAD_REQUEST, f"the body is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise invalid(Reason.BAD_REQUEST, "the body is no JSON object")
    model = fields.get("model", "")
    if not isinstance(model, str):
        raise invalid(Reason.BAD_REQUEST, "model is no string; allowed: a model's name", "model")
    texts = [fields[name] for name in _TEXTS if name in fields]
    characters, token_ids = _size(texts)
    return Reading(
        model=model,
        stream=fields.get("stream") is True,
        n=min(_MOST_CHOICES, max([1, *_counts(fields, "n", "best_of").values()])),
        limits=_counts(fields, *kind.limits),
        exact=fields.get("ignore_eos") is True,
        characters=characters,
        token_ids=token_ids,
        beginning=_beginning(texts, beginning) if beginning else "",
    )


def renamed(body: bytes, model: str) -> bytes:
    """The same request to the model of that name."""
    return orjson.dumps({**orjson.loads(body), "model": model})


def shortened(body: bytes, kind: Kind, most: int) -> bytes:
    """The same request for at most so many output tokens."""
    fields = orjson.loads(body)
    given = [name for name in kind.limits if fields.get(name) is not None]
    for name in given or kind.limits[:1]:
        fields[name] = most
    return orjson.dumps(fields)


def _counts(fields: Mapping[str, Any], *names: str) -> dict[str, int]:
    """Those of these fields that are positive numbers; what is wrong with others is the engine's
    to say."""
    given: dict[str, int] = {}
    for name in names:
        value = fields.get(name)
        if type(value) is int and value > 0:
            given[name] = value
    return given


def _size(value: Any) -> tuple[int, int]:
    """Characters of text and token ids anywhere in it; images and their like count nothing."""
    characters = token_ids = 0
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            characters += len(each)
        elif isinstance(each, dict):
            pending += [part for name, part in each.items() if name not in _NO_TEXT]
        elif isinstance(each, list):
            pending += each
        elif isinstance(each, int):
            token_ids += 1
    return characters, token_ids


def _beginning(value: Any, most: int) -> str:
    """The first characters of all text and token ids in it, in order."""
    parts: list[str] = []
    pending = [value]
    while pending and most > 0:
        each = pending.pop()
        if isinstance(each, dict):
            pending += [each[name] for name in reversed(each) if name not in _NO_TEXT]
        elif isinstance(each, list):
            pending += reversed(each[:most])
        elif isinstance(each, str | int):
            parts.append(f"{each} "[:most])
            most -= len(parts[-1])
    return "".join(parts)


_NO_TEXT = frozenset({"image_url", "input_audio", "file", "source", "role", "type"})
