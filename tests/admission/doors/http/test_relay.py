"""An engine of another maker behind the HTTP door: what its clients get, to the byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.admission.doors.http.relay_rig import PLAIN, PLAIN_BODY, WHOLE, Relayed, post, relaying
from tests.engine.backends.remote.played_server import WAIT
from tests.engine.backends.remote.rig import END, EVENT, HEAD

from surgetank.admission.limits import Limit
from surgetank.admission.relay import prioritised
from surgetank.telemetry.vocabulary import Outcome, Reason


@pytest.fixture
async def relayed(request: pytest.FixtureRequest) -> AsyncIterator[Relayed]:
    """Its parameter, if there is one: how the engine is."""
    async with relaying(**getattr(request, "param", {})) as relayed:
        yield relayed


async def test_a_stream_passes_byte_for_byte_and_is_counted(relayed: Relayed) -> None:
    client = await relayed.ask(stream=True, messages=[{"role": "user", "content": "x" * 40}])
    engine = await relayed.engine.peer()
    _, headers, body = await engine.request()
    assert json.loads(body)["stream"] is True
    assert headers["host"] == relayed.engine.url.removeprefix("http://")
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3}}\n\n'
    sent = EVENT * 3 + b"%x\r\n%b\r\n" % (len(usage), usage) + END
    await engine.say(HEAD + sent)
    status = await client.reader.readuntil(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding: chunked" in status
    assert headers["x-request-id"].encode() in status
    assert await client.reader.readexactly(len(sent)) == sent
    assert await relayed.ended() == [(Outcome.OK, Reason.NONE)]
    ticket = relayed.desk.recent()[0].ticket
    assert ticket.output_tokens == 3
    assert ticket.first_token_at is not None
    client.send(post({"model": "m"}))  # the connection is kept
    await engine.request()
    await engine.say(PLAIN)
    answer = await client.response()
    assert answer[0] == 200
    assert answer[1]["x-own"] == "1"
    assert answer[2] == PLAIN_BODY
    ticket = relayed.desk.recent()[1].ticket
    assert (ticket.output_tokens, ticket.cached_tokens) == (4, 3)


async def test_headers_for_us_stay_with_us(relayed: Relayed) -> None:
    given = (
        "authorization: Bearer k\r\nx-envoy-attempt-count: 1\r\nx-smg-priority: 1\r\n"
        "x-surgetank-timeout: 50\r\nx-gateway-destination-endpoint: evil\r\naccept: */*\r\n"
        "connection: keep-alive, x-hop\r\nx-stainless-lang: python\r\n"
    )
    await relayed.ask(headers=given)
    _, headers, _ = await (await relayed.engine.peer()).request()
    assert headers.keys() == {
        "host",
        "authorization",
        "accept",
        "x-stainless-lang",
        "x-request-id",
        "content-length",
    }


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_an_engine_that_is_full_gives_the_client_our_hint(
    relayed: Relayed, status: int
) -> None:
    client = await relayed.ask()
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(b"HTTP/1.1 %d Full\r\ncontent-length: 4\r\n\r\nfull" % status)
    answer = await client.response()
    assert answer[0] == 429
    assert answer[1]["x-surgetank-reason"] == "engine_full"
    assert int(answer[1]["retry-after-ms"]) >= 50
    assert await relayed.ended() == [(Outcome.OVERLOAD, Reason.ENGINE_FULL)]


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (400, Outcome.INVALID, Reason.ENGINE_REFUSED),
        (404, Outcome.INVALID, Reason.ENGINE_REFUSED),
        (500, Outcome.INTERNAL, Reason.ENGINE_ERROR),
    ],
)
async def test_the_engines_own_errors_pass_as_they_are(
    relayed: Relayed, status: int, outcome: Outcome, reason: Reason
) -> None:
    client = await relayed.ask()
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(b"HTTP/1.1 %d Odd\r\ncontent-length: 9\r\n\r\nits words" % status)
    answer = await client.response()
    assert (answer[0], answer[2]) == (status, b"its words")
    assert await relayed.ended() == [(outcome, reason)]


async def test_a_client_that_leaves_takes_its_request_out_of_the_engine(relayed: Relayed) -> None:
    client = await relayed.ask(stream=True)
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(HEAD + EVENT)
    await client.reader.readuntil(EVENT)
    client.close()
    assert await engine.gone()
    assert await relayed.ended() == [(Outcome.CANCELLED, Reason.CLIENT_GONE)]
    assert relayed.desk.snapshot().dispatched == 0


async def test_a_client_that_leaves_at_its_streams_last_event_was_served(relayed: Relayed) -> None:
    client = await relayed.ask(stream=True)
    await (engine := await relayed.engine.peer()).request()
    last = b'data: {"usage":{"completion_tokens":1}}\n\ndata: [DONE]\n\n'
    await engine.say(HEAD + EVENT + b"%x\r\n%b\r\n" % (len(last), last))
    await client.reader.readuntil(b"[DONE]\n\n\r\n")
    client.close()
    assert await engine.gone()
    assert await relayed.ended() == [(Outcome.OK, Reason.NONE)]
    assert relayed.desk.recent()[0].ticket.output_tokens == 1
    assert relayed.desk.snapshot().dispatched == 0


async def test_before_the_first_byte_a_lost_engine_is_a_503_with_a_hint(relayed: Relayed) -> None:
    client = await relayed.ask(stream=True)
    engine = await relayed.engine.peer()
    await engine.request()
    engine.close()
    answer = await client.response()
    assert answer[0] == 503
    assert "retry-after-ms" in answer[1]
    assert await relayed.ended() == [(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST)]


async def test_between_two_events_a_lost_engine_is_one_more_event(relayed: Relayed) -> None:
    client = await relayed.ask(stream=True)
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(HEAD + EVENT)
    await client.reader.readuntil(EVENT)
    engine.close()
    rest = b"".join([chunk async for chunk in client.chunks()])
    assert rest.startswith(b'data: {"error":')
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_amid_an_event_a_lost_engine_cuts_the_client_off(relayed: Relayed) -> None:
    client = await relayed.ask(stream=True)
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(HEAD + EVENT[:6])
    await client.reader.readuntil(EVENT[:6])
    engine.close()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.reader.readexactly(100)
    assert await relayed.ended() == [(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST)]


async def test_a_client_of_http_1_0_is_asked_for_in_its_version(relayed: Relayed) -> None:
    client = await relayed.ask(version="1.0", stream=True)
    engine = await relayed.engine.peer()
    line, _, _ = await engine.request()
    assert line.endswith("HTTP/1.0")
    await engine.say(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
    engine.close()
    answer = await client.eof()
    assert answer.endswith(b"connection: close\r\n\r\ndata: 1\n\n")
    assert await relayed.ended() == [(Outcome.OK, Reason.NONE)]


async def test_a_slow_reader_holds_the_engine_back_and_loses_nothing(relayed: Relayed) -> None:
    client = await relayed.ask(stream=True)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    engine = await relayed.engine.peer()
    await engine.request()
    events = [b"data: %d %b\n\n" % (number, b"x" * 5000) for number in range(2000)]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + END
    telling = asyncio.create_task(engine.say(HEAD + sent))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not telling.done()
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    await client.reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(WAIT):
        assert b"".join([chunk async for chunk in client.chunks()]) == b"".join(events)
    await telling
    assert await relayed.ended() == [(Outcome.OK, Reason.NONE)]


async def test_what_the_engine_has_no_room_for_waits_at_the_gate(relayed: Relayed) -> None:
    clients = [await relayed.ask() for _ in range(3)]
    peers = [await relayed.engine.peer() for _ in range(2)]
    for peer in peers:
        await peer.request()
    assert relayed.engine.accepted == 2
    assert relayed.desk.snapshot().dispatched == 2
    await peers[0].say(PLAIN)
    await peers[0].request()  # the third, on the same connection
    await peers[0].say(PLAIN)
    await peers[1].say(PLAIN)
    assert [(await client.response())[0] for client in clients] == [200, 200, 200]


async def test_models_are_the_engines_own_and_ours(relayed: Relayed) -> None:
    client = await relayed.connect()
    client.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
    _, _, body = await client.response()
    assert [each["id"] for each in json.loads(body)["data"]] == ["m", "lora", "default"]
    client.send(post({"model": "default"}))
    engine = await relayed.engine.peer()
    assert json.loads((await engine.request())[2])["model"] == "m"
    await engine.say(PLAIN)
    await client.response()
    client.send(post({"model": "lora"}))
    assert json.loads((await engine.request())[2])["model"] == "lora"
    await engine.say(PLAIN)
    await client.response()
    client.send(post({"model": "other"}))
    assert (await client.response())[0] == 404


@pytest.mark.parametrize(
    ("relayed", "told"),
    [({}, None), ({"told": True}, 2)],
    indirect=["relayed"],
    ids=["kept", "passed"],
)
async def test_the_engine_is_told_the_class_where_it_is_to_be(
    relayed: Relayed, told: int | None
) -> None:
    await relayed.ask(headers="x-surgetank-priority: batch\r\n", max_tokens=4)
    _, _, body = await (await relayed.engine.peer()).request()
    assert json.loads(body).get("priority") == told


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"a": 1}', {"a": 1, "priority": 3}),
        (b'{"priority": 0, "a": {}} \n', {"priority": 3, "a": {}}),
        (b"{ }", {"priority": 3}),
    ],
)
def test_our_word_on_priority_is_the_last(body: bytes, told: dict[str, Any]) -> None:
    assert json.loads(prioritised(body, 3)) == told


NEWER = "max_completion_tokens"


@pytest.mark.parametrize(
    ("relayed", "first", "later"),
    [({}, 3, 3.0), ({"ignores": (NEWER,)}, 512, 40.0)],
    indirect=["relayed"],
    ids=["known", "passed over"],
)
async def test_a_limit_that_the_engine_passes_over_is_no_limit_of_its_price(
    relayed: Relayed, first: int, later: float
) -> None:
    engine, body = None, b'{"usage": {"prompt_tokens": 9, "completion_tokens": 40}}'
    for seed in range(8):
        client = await relayed.ask(max_completion_tokens=3, seed=seed)
        engine = await relayed.engine.peer() if engine is None else engine  # it is kept
        await engine.request()
        await engine.say(WHOLE % (len(body), body))
        await client.response()
    await relayed.ask(max_completion_tokens=3)
    await relayed.settle()
    (newest,) = relayed.desk.peek.live()
    before = relayed.desk.recent()[0].ticket
    assert (before.max_tokens, before.estimate.output) == (first, first)
    assert (newest.max_tokens, newest.estimate.output) == (first, later)


@pytest.mark.parametrize("relayed", [{"ignores": (NEWER,)}], indirect=True)
async def test_in_a_brown_out_it_is_asked_for_less_by_the_name_that_it_knows(
    relayed: Relayed,
) -> None:
    relayed.desk.limits.set_base(Limit.LOW_OUTPUT_TOKENS, 16, "policy:test")
    await relayed.ask(headers="x-surgetank-priority: sheddable\r\n", max_completion_tokens=400)
    _, _, body = await (await relayed.engine.peer()).request()
    assert json.loads(body) == {"model": "m", NEWER: 400, "max_tokens": 16}


async def test_in_a_brown_out_the_engine_is_asked_for_less_by_low_classes(relayed: Relayed) -> None:
    relayed.desk.limits.set_base(Limit.LOW_OUTPUT_TOKENS, 16, "policy:test")
    await relayed.ask(headers="x-surgetank-priority: sheddable\r\n", max_tokens=400, seed=7)
    _, headers, body = await (await relayed.engine.peer()).request()
    assert json.loads(body) == {"model": "m", "max_tokens": 16, "seed": 7}
    assert int(headers["content-length"]) == len(body)
    await relayed.ask(max_tokens=400)
    _, _, body = await (await relayed.engine.peer()).request()
    assert json.loads(body)["max_tokens"] == 400


async def test_a_first_event_makes_room_for_who_waits_for_prompts_to_be_read(
    relayed: Relayed,
) -> None:
    words = [{"role": "user", "content": "word " * 60}]  # more than a step reads
    first = await relayed.ask(stream=True, messages=words)
    engine = await relayed.engine.peer()
    await engine.request()
    relayed.clock.advance(0.05)
    await engine.say(HEAD + EVENT)
    await first.reader.readuntil(EVENT)
    relayed.clock.advance(0.05)
    await engine.say(EVENT)
    await first.reader.readuntil(EVENT)
    while relayed.desk.snapshot().last_step is None:
        await relayed.settle()
    # A step is known: from now on prompts are read one after the other.
    second = await relayed.ask(stream=True, messages=words)
    other = await relayed.engine.peer()
    await other.request()
    await engine.say(END)
    await relayed.ended()
    third = await relayed.ask(stream=True, messages=words)
    await relayed.settle()
    assert relayed.desk.snapshot().dispatched == 1, "the second's prompt is still to be read"
    await other.say(HEAD + EVENT)
    await second.reader.readuntil(EVENT)
    await engine.request()  # the third's, on the connection that was kept
    await engine.say(HEAD + EVENT)
    await third.reader.readuntil(EVENT)
