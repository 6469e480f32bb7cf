"""Fields that both OpenAI routes share: strict JSON in; checked values, or one clear error, out."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from surgetank.admission.api import Ask, TextModel
from surgetank.admission.doors.http.order import Rendering
from surgetank.admission.doors.http.text_order import TextOrder
from surgetank.admission.doors.ranges import (
    MAX_STOP_CHARS,
    MAX_STOP_IDS,
    MAX_STOPS,
    NUMBERS,
    unknown_id,
)
from surgetank.admission.doors.strict_json import check_keys
from surgetank.admission.outcome import Refused, invalid
from surgetank.admission.refusals import too_long
from surgetank.engine.api import SamplingParams
from surgetank.engine.text.codec import TooLong
from surgetank.telemetry.vocabulary import Reason

# The table of all doors, and OpenAI's newer names.
_RANGES = {
    **NUMBERS,
    "max_completion_tokens": NUMBERS["max_tokens"],
    "top_logprobs": NUMBERS["logprobs"],
}

# Fields that would change the answer and are not supported: the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "priority": (0,),
}


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`include_obfuscation` pads OpenAI's own events; there is nothing to pad here."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What both routes take. Null means absent, as for OpenAI."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    # not supported: see _NEUTRAL
    logit_bias: Any = None
    tools: Any = None
    functions: Any = None
    tool_choice: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    echo: Any = None
    suffix: Any = None
    best_of: Any = None
    use_beam_search: Any = None
    length_penalty: Any = None
    skip_special_tokens: Any = None
    spaces_between_special_tokens: Any = None
    include_stop_str_in_output: Any = None
    priority: Any = None
    # without effect on the answer: accepted and left alone
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    parallel_tool_calls: Any = None


F = TypeVar("F", bound=Fields)


def read(decoder: msgspec.json.Decoder[F], body: bytes) -> F:
    """The body's fields, their types and ranges checked. Refused with one sentence."""
    try:
        fields = decoder.decode(body)
        check_keys(body.decode())  # msgspec lets a key stand twice
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from None
    except RecursionError:
        raise invalid(Reason.BAD_REQUEST, "the body's JSON is nested too deeply") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise invalid(Reason.BAD_REQUEST, f"the body is not valid JSON: {error}") from None
    _check(fields)
    return fields


def sampling(fields: Fields, max_tokens: int, logprobs: int | None) -> SamplingParams:
    """How to sample; OpenAI's defaults where the client named nothing."""
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens or 0,
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        top_k=max(0, fields.top_k or 0),  # -1 is vLLM's word for off
        min_p=fields.min_p or 0.0,
        repetition_penalty=fields.repetition_penalty or 1.0,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        seed=fields.seed,
        ignore_eos=bool(fields.ignore_eos),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        logprobs=logprobs,
    )


def order(
    fields: Fields,
    logprobs: bool,
    encode: Callable[[TextModel], Ask],
    rendering: Callable[[TextOrder, TextModel, str, int], Rendering],
) -> TextOrder:
    """What a route hands on: the other fields are the same on every route."""
    options = fields.stream_options
    return TextOrder(
        model=fields.model,
        stream=bool(fields.stream),
        include_usage=bool(options and options.include_usage),
        n=fields.n or 1,
        logprobs=logprobs,
        encode=encode,
        rendering=rendering,
    )


def prompt_ids(name: str, encode: Callable[[], list[int]]) -> list[int]:
    """The prompt's token ids; a codec's complaint is about the field `name`."""
    try:
        return encode()
    except TooLong as error:
        raise Refused(too_long(error)) from None
    except ValueError as error:
        raise invalid(Reason.BAD_REQUEST, f"{name}: {error}", name) from None


def stop_strings(fields: Fields) -> tuple[str, ...]:
    """The strings that end an answer."""
    return (fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ())


def out_of_range(name: str, value: object, allowed: str) -> Refused:
    """The error for a field whose value is not allowed."""
    return invalid(Reason.BAD_REQUEST, f"{name} is {_short(value)}; allowed: {allowed}", name)


def check_ids(name: str, ids: list[int], vocab_size: int) -> None:
    """Refused unless each is the id of a token that the model has."""
    wrong = unknown_id(ids, vocab_size)
    if wrong is not None:
        raise out_of_range(name, wrong, f"token ids 0 to {vocab_size - 1}")


def _check(fields: Fields) -> None:
    for name, numbers in _RANGES.items():
        value = getattr(fields, name, None)
        if value is None or isinstance(value, bool):  # on one route `logprobs` is a switch
            continue
        if not numbers.holds(value):
            raise out_of_range(name, value, str(numbers))
    for name, neutral in _NEUTRAL.items():
        value = getattr(fields, name)
        if value is not None and value not in neutral:
            allowed = " or ".join(json.dumps(each) for each in neutral)
            message = f"{name} is not supported; allowed: leave it out, or {allowed}"
            raise invalid(Reason.BAD_REQUEST, message, name)
    if fields.stream_options is not None and not fields.stream:
        raise out_of_range("stream_options", "given", "only with stream: true")
    _check_stop(fields)


def _check_stop(fields: Fields) -> None:
    stop = stop_strings(fields)
    if len(stop) > MAX_STOPS:
        raise out_of_range("stop", f"{len(stop)} strings", f"up to {MAX_STOPS}")
    if not all(0 < len(each) <= MAX_STOP_CHARS for each in stop):
        longest = max(stop, key=len)
        measured = "an empty string" if "" in stop else f"a string of {len(longest)} characters"
        raise out_of_range("stop", measured, f"1 to {MAX_STOP_CHARS} characters each")
    ids = fields.stop_token_ids or ()
    if len(ids) > MAX_STOP_IDS:
        raise out_of_range("stop_token_ids", f"{len(ids)} ids", f"up to {MAX_STOP_IDS}")


_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_FIELD = re.compile(r"field `([^`]*)`")


def _wrong_type(message: str) -> Refused:
    """msgspec's sentence, turned round: first the field, then what is wrong with it."""
    path, field = _PATH.search(message), _FIELD.search(message)
    name = _short(".".join(found[1] for found in (path, field) if found))
    if field is None:
        said = _PATH.sub("", message).replace("`", "")
    else:
        said = "unknown field" if "unknown" in message else "missing; it is required"
    return invalid(Reason.BAD_REQUEST, f"{name or 'the body'}: {said}", name or None)


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
