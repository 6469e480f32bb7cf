"""Sampling parameters as Triton clients send them: numbers may come as text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from surgetank.admission.doors.grpc.tensors import bad, shown
from surgetank.admission.doors.ranges import (
    MAX_STOP_CHARS,
    MAX_STOP_IDS,
    MAX_STOPS,
    NUMBERS,
    TOKEN_ID,
    Range,
)
from surgetank.admission.doors.strict_json import check_keys
from surgetank.engine.api import SamplingParams

DEFAULT_MAX_TOKENS = 16  # vLLM's
OTHERS = ("ignore_eos", "stop", "stop_token_ids")


@dataclass(frozen=True, slots=True)
class Sampling:
    """What the sampling parameters ask for."""

    params: SamplingParams
    n: int
    stop: tuple[str, ...]


def parse_json(data: bytes) -> dict[str, Any]:
    """The sampling_parameters tensor: a JSON object. Raises Refused when it is none."""
    try:
        value = orjson.loads(data)
        check_keys(data.decode())
    except orjson.JSONDecodeError as error:
        raise bad(
            f"sampling_parameters is not JSON: {error.msg} at {error.pos}", "sampling_parameters"
        ) from None
    except ValueError as error:
        raise bad(f"sampling_parameters: {error}", "sampling_parameters") from None
    if not isinstance(value, dict):
        raise bad("sampling_parameters must be a JSON object", "sampling_parameters")
    return value


def read_sampling(given: Mapping[str, Any], logprobs: bool) -> Sampling:
    """Check every parameter. `logprobs`: the request needs each token's log-probability anyway.

    Raises Refused naming the parameter and its allowed values. null means absent.
    """
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in NUMBERS and name not in OTHERS:
            raise bad(
                f"unknown sampling parameter {shown(name)}; allowed: "
                f"{', '.join(sorted([*NUMBERS, *OTHERS]))}"
            )
    fields = {
        name: _number(name, given[name], allowed)
        for name, allowed in NUMBERS.items()
        if name in given
    }
    n = fields.pop("n", 1)
    fields.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    if fields.get("min_tokens", 0) > fields["max_tokens"]:
        raise bad(
            f"min_tokens is {fields['min_tokens']}; allowed: at most max_tokens, which is "
            f"{fields['max_tokens']}",
            "min_tokens",
        )
    if fields.get("top_k") == -1:  # vLLM's "off"
        fields["top_k"] = 0
    if logprobs:
        fields.setdefault("logprobs", 0)
    params = SamplingParams(
        **fields,
        ignore_eos=_boolean("ignore_eos", given.get("ignore_eos", False)),
        stop_token_ids=_token_ids(given.get("stop_token_ids", [])),
    )
    return Sampling(params, n, _stops(given.get("stop", [])))


def _from_text(value: Any) -> Any:
    """Clients send `"0.1"` for 0.1: read text as the JSON it holds, else leave it."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _number(name: str, value: Any, allowed: Range) -> Any:
    number = _from_text(value)
    if not allowed.holds(number):
        raise bad(f"{name} is {shown(str(value))}; allowed: {allowed.sentence}", name)
    return allowed.kind(number)


def _boolean(name: str, value: Any) -> bool:
    truth = _from_text(value.lower() if isinstance(value, str) else value)
    if not isinstance(truth, bool):
        raise bad(f"{name} is {shown(str(value))}; allowed: true or false", name)
    return truth


def _token_ids(value: Any) -> tuple[int, ...]:
    ids = _from_text(value)
    if not isinstance(ids, list) or len(ids) > MAX_STOP_IDS or not all(map(TOKEN_ID.holds, ids)):
        raise bad(
            f"stop_token_ids is {shown(str(value))}; allowed: a list of up to {MAX_STOP_IDS} "
            "token ids",
            "stop_token_ids",
        )
    return tuple(ids)


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or not all(isinstance(s, str) and 0 < len(s) <= MAX_STOP_CHARS for s in stops)
    ):
        raise bad(
            f"stop must be one string or a list of up to {MAX_STOPS}, each of 1 to "
            f"{MAX_STOP_CHARS} characters",
            "stop",
        )
    return tuple(stops)
