"""Bytes that no honest client sends, or not at once: one clear answer each, and no confusion."""

import asyncio

import pytest
from tests.fakes import FakeDesk
from tests.fakes_http import OpenDoor

from surgetank.telemetry.vocabulary import Outcome, Reason

POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b'{"model":"tiny","prompt":"x"}'
WHOLE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


def speaking() -> FakeDesk:
    return FakeDesk(script=[256])


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        POST + b"Content-Length: +3\r\n\r\nabc",
        POST + b"Content-Length: 3, 3\r\n\r\nabc",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length : 3\r\n\r\nabc",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Expect: a-miracle\r\n\r\n",
        b"GET /v1/models HTTP/1.1\nHost: x\n\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET /v1/models\r\n\r\n",
        b"GET http://[::x/v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"BREW /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_doubtful_heads_are_refused_and_the_connection_closed(
    open_door: OpenDoor, data: bytes
) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(data)
    status, headers, body = await client.response()
    assert status == 400
    assert headers["connection"] == "close"
    assert b'"code":"bad_request"' in body
    assert "x-request-id" in headers
    assert await client.eof() == b""
    assert door.desk.tickets == []
    assert door.unread == [Reason.BAD_REQUEST]


async def test_tls_is_told_at_once_that_it_is_not_spoken_here(open_door: OpenDoor) -> None:
    door = await open_door()
    status, _, body = await door.exchange(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
    assert status == 400
    assert b"no TLS" in body


async def test_bytes_after_a_refused_head_are_not_taken_for_a_request(open_door: OpenDoor) -> None:
    door = await open_door(speaking())
    client = await door.connect()
    client.send(POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + WHOLE)
    assert (await client.response())[0] == 400
    assert await client.eof() == b""
    assert door.desk.tickets == []


async def test_headers_beyond_the_limit(open_door: OpenDoor) -> None:
    door = await open_door(max_header_bytes=1024)
    long_line = b"A: " + b"x" * 2000
    for data in (POST + long_line + b"\r\n\r\n", POST + long_line, b"x" * 2000, b"A" * 10**6):
        status, _, body = await door.exchange(data)
        assert status == 431
        assert b'"limit":1024' in body
    assert door.unread == [Reason.HEADERS_TOO_LARGE] * 4


async def test_a_half_sent_head_is_not_waited_for_long(open_door: OpenDoor) -> None:
    door = await open_door(header_timeout=10)
    client = await door.connect()
    client.send(POST)
    await door.settle()
    door.later(9.9)
    client.send(b"A: b\r\n")  # a little more does not buy time
    await door.settle()
    door.later(0.2)
    status, _, body = await client.response()
    assert status == 408
    assert b'"reason":"header_timeout"' in body
    assert await client.eof() == b""
    assert door.unread == [Reason.HEADER_TIMEOUT]


async def test_a_connection_that_says_nothing_is_closed(open_door: OpenDoor) -> None:
    door = await open_door(header_timeout=10)
    client = await door.connect()
    await door.settle()
    door.later(10)
    assert await client.eof() == b""


async def test_an_idle_connection_is_closed_after_its_time(open_door: OpenDoor) -> None:
    door = await open_door(idle_timeout=60)
    client = await door.connect()
    client.send(GET)
    assert (await client.response())[0] == 200
    door.later(59)
    client.send(GET)
    assert (await client.response())[0] == 200
    door.later(60)
    assert await client.eof() == b""


async def test_requests_one_byte_at_a_time(open_door: OpenDoor) -> None:
    door = await open_door(speaking())
    client = await door.connect()
    for byte in b"\r\n" + WHOLE:  # an empty line before a request is allowed
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    status, _, body = await client.response()
    assert status == 200
    assert b'"text":"he"' in body


async def test_pipelined_requests_are_answered_in_order_one_at_a_time(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(WHOLE + GET + WHOLE)
    await door.until(lambda: len(door.desk.calls) == 1)
    assert len(door.desk.tickets) == 1
    door.desk.calls[0].end()
    assert b'"text_completion"' in (await client.response())[2]
    assert b'"list"' in (await client.response())[2]
    await door.until(lambda: len(door.desk.calls) == 2)
    door.desk.calls[1].end()
    assert (await client.response())[0] == 200


async def test_a_flood_of_pipelined_requests_waits_in_the_socket(open_door: OpenDoor) -> None:
    door = await open_door(max_header_bytes=1024)
    client = await door.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(WHOLE + GET * 60_000)
    await door.until(lambda: len(door.desk.calls) == 1)
    door.desk.calls[0].end()
    await door.until(lambda: door.server.unsent_bytes > 0)
    await door.settle()
    assert door.server.unsent_bytes < 128 * 1024  # nor does it answer faster than it is read
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    answers = 0
    async with asyncio.timeout(20):
        while answers < 60_001:
            data = await client.reader.readuntil(b"HTTP/1.1 200 OK")
            answers += data.count(b"HTTP/1.1 200 OK")


async def test_a_chunked_body_and_the_request_after_it(open_door: OpenDoor) -> None:
    door = await open_door(speaking())
    client = await door.connect()
    chunked = (
        b"5;x=y\r\n"
        + BODY[:5]
        + b"\r\n%X\r\n" % len(BODY[5:])
        + BODY[5:]
        + b"\r\n0\r\nT: v\r\n\r\n"
    )
    client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + GET)
    assert b'"text":"he"' in (await client.response())[2]
    assert b'"list"' in (await client.response())[2]


async def test_a_broken_chunk_ends_the_ticket(open_door: OpenDoor) -> None:
    door = await open_door()
    status, headers, _ = await door.exchange(POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
    assert (status, headers["connection"]) == (400, "close")
    assert [(t.outcome, t.reason) for t in door.desk.tickets] == [
        (Outcome.INVALID, Reason.BAD_REQUEST)
    ]


@pytest.mark.parametrize("value", ["close", "Close", "te, close", "te ,close"])
async def test_a_client_that_wants_to_close_is_closed(open_door: OpenDoor, value: str) -> None:
    door = await open_door(speaking())
    for data in (GET, WHOLE):
        client = await door.connect()
        client.send(data.replace(b"Host: x", b"Host: x\r\nConnection: %b" % value.encode()))
        status, headers, _ = await client.response()
        assert (status, headers["connection"]) == (200, "close")
        assert await client.eof() == b""


async def test_expect_100_continue(open_door: OpenDoor) -> None:
    door = await open_door(speaking(), max_body_bytes=1024)
    client = await door.connect()
    client.send(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
    assert (await client.response(has_body=False))[0] == 100
    client.send(BODY)
    assert (await client.response())[0] == 200
    client.send(POST + b"Expect: 100-continue\r\nContent-Length: 9999\r\n\r\n")
    assert (await client.response())[0] == 413


async def test_http_1_0_gets_a_stream_that_ends_with_the_connection(open_door: OpenDoor) -> None:
    door = await open_door(speaking())
    client = await door.connect()
    body = b'{"model":"tiny","prompt":"x","stream":true}'
    client.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    status, headers, _ = await client.response()
    assert (status, headers["connection"]) == (200, "close")
    assert "transfer-encoding" not in headers
    assert (await client.eof()).endswith(b"data: [DONE]\n\n")


async def test_an_offer_to_upgrade_is_ignored(open_door: OpenDoor) -> None:
    door = await open_door(speaking())
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    status, _, body = await door.exchange(WHOLE.replace(b"Host: x\r\n", b"Host: x\r\n" + offer))
    assert status == 200
    assert b'"text":"he"' in body
