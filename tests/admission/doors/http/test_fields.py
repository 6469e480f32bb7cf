"""Request bodies: what is accepted, and for what is not, the one sentence that says why."""

import json
from typing import Any

import pytest
from tests.fakes import FakeDesk

from surgetank.admission.doors.http.chat import CHAT
from surgetank.admission.doors.http.completions import COMPLETIONS
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.text_order import TextOrder
from surgetank.admission.outcome import Refusal, Refused
from surgetank.telemetry.vocabulary import Reason

CONFIG = HttpConfig.model_validate({})
SERVED = FakeDesk().served
USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> TextOrder:
    return CHAT.read(json.dumps({"model": "m", "messages": [USER], **fields}).encode(), CONFIG)


def completion(**fields: Any) -> TextOrder:
    return COMPLETIONS.read(json.dumps({"model": "m", "prompt": "x", **fields}).encode(), CONFIG)


def refusal(body: bytes) -> Refusal:
    with pytest.raises(Refused) as caught:
        CHAT.read(body, CONFIG)
    assert caught.value.refusal.reason is Reason.BAD_REQUEST
    return caught.value.refusal


def test_every_sampling_field_reaches_the_engine() -> None:
    sampling = (
        chat(
            max_tokens=9,
            min_tokens=2,
            temperature=0.5,
            top_p=0.9,
            top_k=40,
            min_p=0.1,
            repetition_penalty=1.1,
            presence_penalty=-1,
            frequency_penalty=0.25,
            seed=-3,
            ignore_eos=True,
            stop_token_ids=[5, 6],
            logprobs=True,
            top_logprobs=3,
        )
        .ask(SERVED)
        .sampling
    )
    assert (sampling.max_tokens, sampling.min_tokens, sampling.seed) == (9, 2, -3)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 40)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.1, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (-1.0, 0.25)
    assert (sampling.ignore_eos, sampling.stop_token_ids, sampling.logprobs) == (True, (5, 6), 3)


def test_defaults_are_those_of_openai() -> None:
    ask = completion().ask(SERVED)
    assert (ask.sampling.max_tokens, ask.sampling.temperature, ask.sampling.top_p) == (16, 1, 1)
    assert (ask.n, ask.stop, ask.sampling.logprobs, ask.sampling.seed) == (1, (), None, None)
    assert completion(temperature=0).ask(SERVED).sampling.temperature == 0
    assert completion(top_k=-1).ask(SERVED).sampling.top_k == 0


def test_a_chat_without_a_maximum_takes_the_configured_one_if_it_fits() -> None:
    assert chat().ask(SERVED).sampling.max_tokens == CONFIG.default_max_tokens
    long = chat(messages=[{"role": "user", "content": "x" * 1900}]).ask(SERVED)
    assert len(long.prompt) + long.sampling.max_tokens == SERVED.card.context_length


def test_messages_may_be_text_parts_and_echoed_answers() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    echoed: dict[str, Any] = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
    }
    order = chat(messages=[{"role": "developer", "content": parts}, echoed, USER])
    expected = [{"role": "system", "content": "a\nb"}, {"role": "assistant", "content": ""}, USER]
    assert order.ask(SERVED).prompt == SERVED.codec.encode_chat(expected)


def test_prompts_may_be_text_ids_or_a_list_of_one() -> None:
    text = SERVED.codec.encode("hello")
    for prompt, ids in [("hello", text), (["hello"], text), ([1, 2], [1, 2]), ([[1, 2]], [1, 2])]:
        assert completion(prompt=prompt).ask(SERVED).prompt == ids


def test_what_asks_for_nothing_is_accepted() -> None:
    chat(tools=[], logit_bias={}, response_format={"type": "text"}, tool_choice="auto", n=1)
    chat(user="u", metadata={"a": "b"}, store=True, service_tier="auto", seed=None, stop=None)
    completion(echo=False, best_of=1, suffix="", logit_bias=None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": 5_000_000}, "n is 5000000; allowed: 1 to 128"),
        ({"n": 0}, "n is 0; allowed: 1 to 128"),
        ({"n": True}, "n: Expected int | null, got bool"),
        ({"n": "2"}, "n: Expected int | null, got str"),
        ({"temperature": 2.5}, "temperature is 2.5; allowed: 0 to 2"),
        ({"temperature": -1}, "temperature is -1.0; allowed: 0 to 2"),
        ({"top_p": 0}, "top_p is 0.0; allowed: 0.0001 to 1"),
        ({"max_tokens": 0}, "max_tokens is 0; allowed: 1 to 2147483647"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens is 6; allowed: the"),
        ({"max_tokens": 5, "min_tokens": 6}, "min_tokens is 6; allowed: 0 to max_tokens, 5"),
        ({"seed": 2**63}, "seed is 9223372036854775808; allowed: -9223372036854775808 to"),
        ({"top_logprobs": 10**9, "logprobs": True}, "top_logprobs is 1000000000; allowed: 0 to 20"),
        ({"top_logprobs": 2}, "top_logprobs is 2; allowed: only with logprobs: true"),
        ({"stop": ["x"] * 17}, "stop is 17 strings; allowed: up to 16"),
        ({"stop": ["x", ""]}, "stop is an empty string; allowed: 1 to 256 characters each"),
        ({"stop": "x" * 300}, "stop is a string of 300 characters; allowed: 1 to 256"),
        ({"stop_token_ids": [1] * 65}, "stop_token_ids is 65 ids; allowed: up to 64"),
        ({"logit_bias": {"5": 1}}, "logit_bias is not supported; allowed: leave it out, or {}"),
        ({"tools": [{"type": "function"}]}, "tools is not supported; allowed: leave it out, or []"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported; "),
        ({"stream_options": {}}, "stream_options is given; allowed: only with stream: true"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x: unknown field"),
        ({"max_token": 5}, "max_token: unknown field"),
        ({"messages": []}, "messages is an empty list; allowed: at least one message"),
        ({"messages": "hi"}, "messages: Expected array, got str"),
        ({"messages": [{"content": "x"}]}, "messages[0].role: missing; it is required"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content is null; allowed: a string"),
        (
            {"messages": [{"role": "x", "content": ""}]},
            "messages[0].role is 'x'; allowed: system, ",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type is 'image_url'; allowed: text",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            "messages[0].tool_calls is given; allowed: leave it out",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_allowed(
    fields: dict[str, Any], message: str
) -> None:
    found = refusal(json.dumps({"model": "m", "messages": [USER], **fields}).encode())
    assert found.message.startswith(message)
    assert found.param is not None
    assert message.startswith(found.param)


LONG = "y" * 100_000


@pytest.mark.parametrize(
    "fields",
    [
        {LONG: 1},
        {"messages": [{"role": LONG, "content": ""}]},
        {"messages": [{"role": "user", "content": [{"type": LONG}]}]},
        {"stream": True, "stream_options": {LONG: 1}},
        {"metadata": {LONG: 1}, "temperature": LONG},
    ],
)
def test_a_clients_text_is_cut_where_it_is_told(fields: dict[str, Any]) -> None:
    found = refusal(json.dumps({"model": "m", "messages": [USER], **fields}).encode())
    assert len(found.message) < 200
    assert len(found.param or "") < 100


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "prompt is neither text nor token ids"),
        (["a", "b"], "prompt is a list of 2 prompts; allowed: a string"),
        ([[1], [2]], "prompt is a list of 2 prompts"),
        ([1, "a"], "prompt is neither text nor token ids"),
        ([True], "prompt is neither text nor token ids"),
        (None, "prompt: Expected str | array, got null"),
    ],
)
def test_prompts_of_other_shapes_are_refused(prompt: object, message: str) -> None:
    with pytest.raises(Refused) as caught:
        completion(prompt=prompt)
    assert caught.value.refusal.message.startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": ""}, "prompt is empty; allowed: at least one token"),
        ({"prompt": [-1]}, "prompt is -1; allowed: token ids 0 to"),
        ({"prompt": [10**30]}, "prompt is 1000000000000000000000000000000; allowed: token ids"),
        ({"stop_token_ids": [999_999]}, "stop_token_ids is 999999; allowed: token ids 0 to"),
    ],
)
def test_what_only_the_model_can_tell_is_refused_then(fields: dict[str, Any], message: str) -> None:
    order = completion(**fields)
    with pytest.raises(Refused) as caught:
        order.ask(SERVED)
    assert caught.value.refusal.message.startswith(message)


@pytest.mark.parametrize(
    ("order", "fewest"),
    [
        (completion(prompt="x" * 30_000), 2308),  # of 13 characters at most, as "<|endoftext|>" has
        (chat(messages=[{"role": "user", "content": "x" * 30_000}]), 2308),
        (chat(messages=[USER] * 3000), 3000),
    ],
    ids=["prompt", "message", "messages"],
)
def test_what_cannot_fit_however_it_is_cut_is_not_tokenised(order: TextOrder, fewest: int) -> None:
    with pytest.raises(Refused) as caught:
        order.ask(SERVED)
    found = caught.value.refusal
    assert (found.reason, found.limit) == (Reason.NEVER_FITS_CONTEXT, SERVED.card.context_length)
    assert found.measured == pytest.approx(fewest, abs=10)


HEAD = b'{"model":"m","messages":[{"role":"user","content":"x"}]'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not valid JSON"),
        (b"{", "the body is not valid JSON"),
        (b"[]", "the body: Expected object, got array"),
        (HEAD + b"} x", "the body is not valid JSON"),
        (HEAD + b',"temperature":NaN}', "the body is not valid JSON"),
        (HEAD + b',"temperature":1e999}', "temperature: Number out of range"),
        (HEAD + b',"seed":' + b"9" * 5000 + b"}", "seed: Integer value out of range"),
        (HEAD + b',"metadata":' + b"9" * 5000 + b"}", "metadata: Integer value out of range"),
        (HEAD + b',"n":1,"n":2}', "the body is not valid JSON: the key n stands twice"),
        (
            HEAD + b',"metadata":{"a":1,"a":2}}',
            "the body is not valid JSON: the key a stands twice",
        ),
        (HEAD + b',"tools":' + b"[" * 100_000 + b"}", "the body's JSON is nested too deeply"),
        (HEAD + b',"user":' + b'{"a":' * 50_000, "the body's JSON is nested too deeply"),
        (HEAD.replace(b'"x"', b'"\xff"') + b"}", "the body is not valid JSON: Invalid UTF-8"),
        (HEAD.replace(b'"x"', b'"\\ud800"') + b"}", "the body is not valid JSON"),
        ((HEAD + b"}").decode().encode("utf-16"), "the body is not valid JSON"),
    ],
)
def test_bodies_that_are_no_honest_json(body: bytes, message: str) -> None:
    assert refusal(body).message.startswith(message)


def test_a_great_many_keys_with_one_twice_are_told_quickly() -> None:
    keys = b",".join(b'"%d":0' % i for i in range(200_000))
    body = HEAD + b',"metadata":{' + keys + b',"7":1}}'
    assert "the key 7 stands twice" in refusal(body).message
