"""KServe before an engine that speaks OpenAI's HTTP: what it is asked, what its answers become."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from tests.admission.doors.grpc.rig import ask
from tests.fakes import tiny_card

from surgetank.admission.api import End
from surgetank.admission.doors.grpc.inbox import Inbox
from surgetank.admission.doors.grpc.query import Query, read_query
from surgetank.admission.doors.grpc.relay_tongue import RelayText, RelayTongue
from surgetank.admission.outcome import Refused
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayModel
from surgetank.engine.backends.remote.api import AnswerHead
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

SERVED = RelayModel("m", tiny_card(name="m"), ("m",))
OK = End(Outcome.OK, None, 3, 2, 0)


def query(*, decoupled: bool = True, **fields: Any) -> Query:
    return read_query(ask(**fields), decoupled=decoupled)


async def asked(**fields: Any) -> dict[str, Any]:
    made = await RelayTongue(PromptSizes()).ask(query(**fields), SERVED, "id-1")
    assert made.forward.path == "/v1/completions"
    assert made.forward.http_1_0
    assert ("x-request-id", "id-1") in made.forward.headers
    body: dict[str, Any] = json.loads(made.forward.body)
    return body


async def answered(
    pieces: Iterable[bytes], end: End = OK, *, status: int = 200, **fields: Any
) -> tuple[list[tuple[int, str, int, FinishReason | None]], End]:
    """Deltas (choice, text, tokens, finish) of an answer that comes in such pieces."""
    inbox = Inbox(None, lambda: None)
    text = RelayText(query(**fields), inbox)
    text.on_head(AnswerHead(status, ()))
    for piece in pieces:
        text.on_data(piece, False)
    text.on_end(end, True)
    deltas = await inbox.take()
    assert inbox.end is not None
    return [(each.index, each.text, len(each.token_ids), each.finish) for each in deltas], inbox.end


async def test_only_what_was_asked_for_is_asked_for() -> None:
    assert await asked(text="hi", sampling={"max_tokens": 5}) == {
        "model": "m",
        "prompt": "hi",
        "stream": False,
        "max_tokens": 5,
        "temperature": 1.0,
    }
    body = await asked(
        sampling={"max_tokens": 5, "top_k": 3, "n": 2, "stop": ["x"], "seed": 7, "temperature": 0},
        stream=True,
    )
    assert body["stream"] is True
    assert (body["top_k"], body["n"], body["stop"], body["seed"]) == (3, 2, ["x"], 7)


async def test_what_needs_the_engines_tokens_is_refused() -> None:
    with pytest.raises(Refused, match="logprobs cannot be had"):
        await asked(return_logprobs=True, sampling={"max_tokens": 5})


async def test_events_become_text_in_whatever_pieces() -> None:
    stream = (
        b'data: {"choices": [{"index": 0, "text": "a b", "finish_reason": null}]}\n\n'
        b": ping\n\n"
        b'data: {"choices": [{"index": 0, "text": "\\u00e4", "finish_reason": "length"}]}\r\n\r\n'
        b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\ndata: [DONE]\n\n'
    )
    expected = [(0, "a b", 1, None), (0, "ä", 1, FinishReason.LENGTH)]
    for size in (1, 7, 1000):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        deltas, end = await answered(pieces, stream=True)
        assert deltas == expected
        assert end is OK


async def test_a_plain_answer_is_read_once_it_is_whole() -> None:
    answer = json.dumps(
        {
            "choices": [
                {"index": 1, "text": "two", "finish_reason": "stop"},
                {"index": 0, "text": "one", "finish_reason": "length"},
            ],
            "usage": {"completion_tokens": 8},
        }
    ).encode()
    deltas, _ = await answered([answer[:9], answer[9:]], sampling={"n": 2})
    assert deltas == [(1, "two", 4, FinishReason.STOP), (0, "one", 4, FinishReason.LENGTH)]


async def test_a_choice_that_does_not_say_why_it_ended_has_stopped() -> None:
    deltas, _ = await answered([b"data: [DONE]\n\n"], stream=True)
    assert deltas == [(0, "", 0, FinishReason.STOP)]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"choices": [{}]}', b"<html>"])
async def test_an_answer_that_makes_no_sense_is_an_error_and_no_silence(body: bytes) -> None:
    deltas, end = await answered([body])
    assert deltas == []
    assert end.outcome is Outcome.INTERNAL
    assert end.refusal is not None
    assert end.refusal.reason is Reason.ENGINE_ERROR


async def test_an_engines_error_is_no_text() -> None:
    refused = End(Outcome.INVALID, None, 0, 0, 0)
    deltas, _ = await answered([b'{"error": {}}'], refused, status=400, stream=True)
    assert not any(text for _, text, _, _ in deltas)
