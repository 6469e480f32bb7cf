"""The real `anthropic` package before an engine of another maker: what it makes of our refusals."""

import asyncio
import json
import random
from collections.abc import AsyncIterator

import anthropic
import pytest
from anthropic.types import MessageParam
from tests.admission.doors.http.relay_rig import Relayed, relaying
from tests.engine.backends.remote.played_server import Peer
from tests.engine.backends.remote.rig import HEAD

from surgetank.admission.tenants import Tenants, TenantsConfig
from surgetank.telemetry.vocabulary import Outcome, Reason

HELLO: list[MessageParam] = [{"role": "user", "content": "hi"}]
KEY = "sk-acme-0001"
USAGE = {"input_tokens": 9, "output_tokens": 2}
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "usage": USAGE,
}


def chunk(name: str, **fields: object) -> bytes:
    """One event, in a chunk of its own."""
    event = f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def text(piece: str) -> bytes:
    delta = {"type": "text_delta", "text": piece}
    return chunk("content_block_delta", index=0, delta=delta)


BEGIN = chunk("message_start", message={**ANSWER, "content": [], "stop_reason": None}) + chunk(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)
FINISH = (
    chunk("content_block_stop", index=0)
    + chunk("message_delta", delta={"stop_reason": "end_turn"}, usage=USAGE)
    + chunk("message_stop")
    + b"0\r\n\r\n"
)


async def answer(peer: Peer) -> None:
    """The engine answers one plain request."""
    await peer.request()
    body = json.dumps(ANSWER).encode()
    await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def client_of(relayed: Relayed, retries: int = 0, key: str = KEY) -> anthropic.AsyncAnthropic:
    url = f"http://127.0.0.1:{relayed.door.port}"
    return anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=retries)


@pytest.fixture
async def relayed() -> AsyncIterator[Relayed]:
    """One slot, and a queue of one."""
    async with relaying(in_flight_seqs=1, queue_requests=1) as relayed:
        yield relayed


async def ask(client: anthropic.AsyncAnthropic, model: str = "m") -> anthropic.types.Message:
    return await client.messages.create(model=model, max_tokens=8, messages=HELLO)


def stream_of(
    client: anthropic.AsyncAnthropic,
) -> asyncio.Task[anthropic.AsyncStream[anthropic.types.RawMessageStreamEvent]]:
    """Done with the first bytes of the answer."""
    asked = client.messages.create(model="m", max_tokens=8, messages=HELLO, stream=True)
    return asyncio.create_task(asked)


async def collect(
    events: AsyncIterator[anthropic.types.RawMessageStreamEvent], seen: list[str]
) -> None:
    """Append each event's type as it comes."""
    async for event in events:
        seen.append(event.type)


async def test_a_full_queue_is_an_overload_that_is_asked_again_when_we_say(
    relayed: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("anyio.sleep", sleep)  # between two attempts of the client's
    async with client_of(relayed, retries=1) as client:
        asked = [asyncio.create_task(ask(client))]
        engine = await relayed.engine.peer()
        asked.append(asyncio.create_task(ask(client)))
        while len(relayed.desk.peek.live()) < 2:
            await relayed.settle()
        with pytest.raises(anthropic.OverloadedError) as caught:
            await ask(client)
        for _ in asked:
            await answer(engine)
        await asyncio.gather(*asked)
    error = caught.value
    assert (error.status_code, error.type, error.error_code) == (
        529,
        "overloaded_error",
        "queue_requests",
    )
    assert error.api_message is not None
    assert error.api_message.startswith("overloaded: 2 requests would wait")
    assert error.request_id == error.response.headers["x-request-id"]
    assert isinstance(error.body, dict)
    assert error.body["error"]["details"]["limit"] == 1
    first, second = [each for each in relayed.desk.recent() if each.refusal is not None]
    assert first.refusal is not None
    assert first.refusal.retry_after is not None
    assert slept == [round(first.refusal.retry_after, 3)]
    assert (first.ticket.attempt, second.ticket.attempt) == (0, 1)
    assert relayed.desk.recent()[-1].ticket.output_tokens == 2


async def test_what_is_asked_of_nobody_is_not_found_in_its_own_words(relayed: Relayed) -> None:
    async with client_of(relayed, retries=2) as client:
        with pytest.raises(anthropic.NotFoundError) as model:
            await ask(client, model="no/such")
        assert (model.value.type, model.value.error_code) == ("not_found_error", "unknown_model")
        with pytest.raises(anthropic.NotFoundError) as path:
            await client.messages.batches.list()
        assert path.value.error_code == "unknown_route"
    assert await relayed.ended() == [(Outcome.NOT_FOUND, Reason.UNKNOWN_MODEL)]


async def test_draining_and_a_lost_engine_are_unavailable(relayed: Relayed) -> None:
    async with client_of(relayed) as client:
        lost = asyncio.create_task(ask(client))
        engine = await relayed.engine.peer()
        await engine.request()
        engine.close()
        with pytest.raises(anthropic.ServiceUnavailableError) as caught:
            await lost
        assert (caught.value.type, caught.value.error_code) == ("api_error", "engine_lost")
        assert caught.value.response.headers["x-should-retry"] == "true"
        relayed.desk.drain()
        with pytest.raises(anthropic.ServiceUnavailableError) as caught:
            await ask(client)
        assert caught.value.error_code == "operator"


async def test_a_stream_tells_its_tokens_and_no_others(relayed: Relayed) -> None:
    async with client_of(relayed) as client:
        asked = stream_of(client)
        engine = await relayed.engine.peer()
        await engine.request()
        await engine.say(HEAD + BEGIN)
        await anext(events := aiter(await asked))
        (ticket,) = relayed.desk.peek.live()
        assert (ticket.output_tokens, ticket.first_token_at) == (0, None)
        await engine.say(text("hel") + text("lo"))
        while ticket.output_tokens < 2:
            await relayed.settle()
        assert ticket.output_tokens == 2
        assert ticket.first_token_at is not None
        await engine.say(FINISH)
        assert [event.type async for event in events][-1] == "message_stop"
    assert await relayed.ended() == [(Outcome.OK, Reason.NONE)]
    assert (ticket.output_tokens, ticket.input_tokens) == (2, 9)


async def test_an_engine_lost_between_two_events_raises_in_the_stream(relayed: Relayed) -> None:
    async with client_of(relayed) as client:
        asked = stream_of(client)
        engine = await relayed.engine.peer()
        await engine.request()
        await engine.say(HEAD + BEGIN + text("hel"))
        seen: list[str] = [(await anext(events := aiter(await asked))).type]
        engine.close()
        with pytest.raises(anthropic.APIStatusError, match="backend down") as caught:
            await collect(events, seen)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    assert (caught.value.type, caught.value.error_code) == ("api_error", "engine_lost")


async def test_its_key_is_a_tenants_key() -> None:
    known = TenantsConfig.model_validate({"keys": [{"key": KEY, "tenant": "acme"}]})
    async with relaying(tenants=Tenants(known, random.Random(1))) as relayed:
        async with client_of(relayed) as client, client_of(relayed, key="wrong") as other:
            asked = asyncio.create_task(ask(client))
            await answer(await relayed.engine.peer())
            await asked
            with pytest.raises(anthropic.AuthenticationError) as caught:
                await ask(other)
        assert (caught.value.type, caught.value.error_code) == ("authentication_error", "api_key")
        assert [each.ticket.tenant for each in relayed.desk.recent()] == ["acme", ""]
