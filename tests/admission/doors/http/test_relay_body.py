"""What is read out of a body that is the engine's to understand, and what is changed in it."""

import json
from typing import Any

import pytest

from surgetank.admission.doors.http.relay_body import KINDS, read_body, renamed, shortened
from surgetank.admission.outcome import Refused

CHAT, TEXT = KINDS["/v1/chat/completions"], KINDS["/v1/completions"]


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def test_sizes_are_read() -> None:
    messages = [
        {"role": "user", "content": "hello"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9999}},
            ],
        },
    ]
    reading = read_body(
        body(messages=messages, max_completion_tokens=7, max_tokens=9, n=2, stream=True), CHAT
    )
    assert (reading.model, reading.stream, reading.n) == ("m", True, 2)
    assert reading.limits == {"max_completion_tokens": 7, "max_tokens": 9}
    assert reading.max_tokens(CHAT) == 7
    assert reading.max_tokens(CHAT.without(["max_completion_tokens"])) == 9
    assert reading.characters == len("hello") + len("what is this?")
    assert not reading.exact


def test_token_ids_are_counted_and_not_guessed() -> None:
    reading = read_body(body(prompt=[[1, 2, 3], [4]], ignore_eos=True), TEXT)
    assert (reading.token_ids, reading.characters, reading.limits) == (4, 0, {})
    assert reading.exact


@pytest.mark.parametrize(
    "odd", [{"n": "2"}, {"n": -1}, {"n": True}, {"max_tokens": 1.5}, {"messages": 5}, {"stream": 1}]
)
def test_what_is_wrong_with_other_fields_is_the_engines_to_say(odd: dict[str, Any]) -> None:
    reading = read_body(body(**odd), CHAT)
    assert (reading.n, reading.limits, reading.stream) == (1, {}, False)


@pytest.mark.parametrize("wrong", [b"", b"{", b"[1]", b"null", b'{"model": 5}', b"\xff"])
def test_what_cannot_be_judged_is_refused(wrong: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_body(wrong, CHAT)
    assert refused.value.refusal.http_status == 400


def test_nesting_without_end_is_refused_or_read_but_never_a_crash() -> None:
    deep = b'{"model":"m","messages":' + b"[" * 500 + b"]" * 500 + b"}"
    assert read_body(deep, CHAT).characters == 0
    with pytest.raises(Refused):
        read_body(b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", CHAT)


def test_only_what_must_change_changes() -> None:
    given = body(messages=[], max_tokens=500, unknown={"kept": [1]})
    assert json.loads(shortened(given, CHAT, 64)) == {
        "model": "m",
        "messages": [],
        "max_tokens": 64,
        "unknown": {"kept": [1]},
    }
    assert json.loads(shortened(body(), CHAT, 64))["max_completion_tokens"] == 64
    assert json.loads(renamed(given, "other"))["model"] == "other"


def test_an_engine_is_told_of_less_by_the_name_that_it_knows() -> None:
    older = CHAT.without(["max_completion_tokens"])
    given = body(max_completion_tokens=500)
    assert json.loads(shortened(given, older, 64)) == {
        "model": "m",
        "max_completion_tokens": 500,
        "max_tokens": 64,
    }
