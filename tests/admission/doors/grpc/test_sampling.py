"""Sampling parameters: text or numbers, each in its range, unknown ones named."""

from typing import Any

import pytest

from surgetank.admission.doors.grpc.sampling import parse_json, read_sampling
from surgetank.admission.outcome import Refused
from surgetank.engine.api import SamplingParams


def read(given: dict[str, Any]) -> SamplingParams:
    return read_sampling(given, logprobs=False).params


def test_numbers_as_text_are_numbers() -> None:
    text = read({"temperature": "0.1", "top_p": "0.95", "max_tokens": "100", "ignore_eos": "True"})
    assert text == SamplingParams(max_tokens=100, temperature=0.1, top_p=0.95, ignore_eos=True)
    assert text == read({"temperature": 0.1, "top_p": 0.95, "max_tokens": 100, "ignore_eos": True})


def test_absent_and_null_are_the_defaults() -> None:
    assert read({"seed": None}) == SamplingParams(max_tokens=16)


def test_the_rest_of_the_fields() -> None:
    given = {"n": "2", "stop": ["a", "b"], "stop_token_ids": "[1, 2]", "top_k": -1, "min_tokens": 3}
    sampling = read_sampling(given, logprobs=True)
    assert (sampling.n, sampling.stop) == (2, ("a", "b"))
    assert sampling.params.stop_token_ids == (1, 2)
    assert (sampling.params.top_k, sampling.params.min_tokens) == (0, 3)
    assert sampling.params.logprobs == 0  # the chosen token's own, no alternatives


def test_asking_for_alternatives_is_kept() -> None:
    assert read_sampling({"logprobs": 2}, logprobs=True).params.logprobs == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"beam_width": 3}, "unknown sampling parameter 'beam_width'; allowed: frequency_penalty"),
        ({"max_tokens": 0}, "max_tokens is '0'; allowed: a whole number from 1"),
        ({"max_tokens": "1.5"}, "max_tokens is '1.5'"),
        ({"max_tokens": True}, "max_tokens is 'True'"),
        ({"max_tokens": "1_0"}, "max_tokens is '1_0'"),
        ({"temperature": "hot"}, "temperature is 'hot'; allowed: a number from 0"),
        ({"temperature": "NaN"}, "temperature is 'NaN'"),
        ({"temperature": float("nan")}, "temperature is 'nan'"),
        ({"temperature": -0.1}, "temperature is '-0.1'"),
        ({"top_p": 0}, "top_p is '0'; allowed: a number from 0.0001 to 1"),
        ({"seed": 1 << 63}, "seed is"),
        ({"min_tokens": 20}, "min_tokens is 20; allowed: at most max_tokens, which is 16"),
        ({"n": 129}, "n is '129'; allowed: a whole number from 1 to 128"),
        ({"ignore_eos": 1}, "ignore_eos is '1'; allowed: true or false"),
        ({"stop": [""]}, "stop must be one string or a list"),
        ({"stop": ["a"] * 17}, "up to 16"),
        ({"stop": 5}, "stop must be one string"),
        ({"stop_token_ids": [-1]}, "allowed: a list of up to 64 token ids"),
        ({"stop_token_ids": "5"}, "stop_token_ids is '5'"),
        ({"max_tokens": "9" * 500}, "max_tokens is '99"),
    ],
)
def test_wrong_values_are_named(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        read(given)
    assert sentence in refused.value.refusal.message
    assert len(refused.value.refusal.message) < 400


def test_only_a_json_object() -> None:
    assert parse_json(b'{"seed": 1}') == {"seed": 1}
    with pytest.raises(Refused, match="must be a JSON object"):
        parse_json(b"[1]")
    with pytest.raises(Refused, match="sampling_parameters is not JSON"):
        parse_json(b"{'seed': 1}")
    with pytest.raises(Refused, match="sampling_parameters: the key seed stands twice"):
        parse_json(b'{"seed": 1, "seed": 2}')
