"""The door as a whole: how many it serves, how it drains, how it stops."""

import asyncio
import json

import pytest
from pydantic import ValidationError
from tests.fakes import FakeDesk
from tests.fakes_http import OpenDoor, RawClient

from surgetank.admission.doors.http.config import HttpConfig
from surgetank.telemetry.vocabulary import Outcome, Reason

GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b'{"model":"tiny","prompt":"x","stream":true}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_peer"])
async def test_surplus_connections_are_turned_away_with_a_reason(
    open_door: OpenDoor, limit: str
) -> None:
    door = await open_door(FakeDesk(script=[256]), **{limit: 1})
    first = await door.connect()
    first.send(GET)
    assert (await first.response())[0] == 200
    assert (await door.exchange(HEALTH))[0] == 200  # a probe must not fail because the door is full
    status, headers, body = await door.exchange(POST)
    assert (status, headers["connection"]) == (429, "close")
    error = json.loads(body)["error"]
    assert (error["reason"], error["limit_name"]) == ("connections", f"http.{limit}")
    assert [ticket.reason for ticket in door.desk.tickets] == [Reason.CONNECTIONS]
    first.send(POST)
    assert (await first.response())[0] == 200


async def test_a_flood_of_connections_is_cut_off(open_door: OpenDoor) -> None:
    door = await open_door(max_connections=2)
    clients = [await door.connect() for _ in range(10)]
    await door.until(lambda: door.server.connections == 4)
    assert door.unread == [Reason.CONNECTIONS] * 6
    clients[0].send(GET)
    assert (await clients[0].response())[0] == 200


async def test_draining_lets_answers_end_and_closes_after_them(open_door: OpenDoor) -> None:
    door = await open_door()
    busy, idle = await door.connect(), await door.connect()
    busy.send(POST)
    idle.send(GET)
    assert (await idle.response())[0] == 200
    await door.until(lambda: len(door.desk.calls) == 1)
    waiting = asyncio.create_task(door.server.wait_idle())
    assert await idle.eof() == b""
    late = await door.connect()
    late.send(GET)  # new requests are still answered (by the desk: refused), and closed after
    assert (await late.response())[1]["connection"] == "close"
    assert not waiting.done()
    door.desk.calls[0].emit([256])
    door.desk.calls[0].end()
    assert (await busy.response())[2].endswith(b"data: [DONE]\n\n")
    assert await busy.eof() == b""
    async with asyncio.timeout(5):
        await waiting


async def test_stopping_ends_what_is_still_running(open_door: OpenDoor) -> None:
    door = await open_door()
    client, port = await door.connect(), door.server.port
    client.send(POST)
    await door.until(lambda: len(door.desk.calls) == 1)
    door.desk.calls[0].emit([256])
    await door.server.stop()
    assert door.desk.calls[0].cancelled == (Outcome.DRAINING, Reason.OPERATOR)
    body = (await client.response())[2]
    assert b'data: {"error":' in body
    assert body.endswith(b"data: [DONE]\n\n")
    with pytest.raises(ConnectionRefusedError):
        await RawClient.connect(port)


async def test_stopping_amid_a_body_refuses_its_ticket(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(POST[:-1])
    await door.until(lambda: len(door.desk.tickets) == 1)
    stopping = asyncio.create_task(door.server.stop())
    assert (await client.response())[0] == 503
    client.close()
    await stopping
    assert [ticket.outcome for ticket in door.desk.tickets] == [Outcome.DRAINING]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", -1),
        ("max_connections", 0),
        ("header_timeout", 0),
        ("body_timeout", "nan"),
        ("x", 1),
    ],
)
def test_configuration_errors_name_the_key(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=key):
        HttpConfig.model_validate({key: value})
