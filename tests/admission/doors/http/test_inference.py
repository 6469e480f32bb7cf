"""A request's life in the door: whatever happens to client, body or desk, its ticket ends once."""

import asyncio
import json
import random
import threading
import tracemalloc

import pytest
from tests.fakes import FakeCall, FakeDesk, tiny_card
from tests.fakes_http import Door, OpenDoor, RawClient

from surgetank.admission.api import Ask, Listener, TextModel
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.engine.text.codec import TextCodec
from surgetank.telemetry.vocabulary import Outcome, Reason


def post(body: bytes | dict[str, object], path: str = "completions") -> bytes:
    if isinstance(body, dict):
        body = json.dumps({"model": "tiny", **body}).encode()
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def ends(desk: FakeDesk) -> list[tuple[Outcome | None, Reason]]:
    return [(ticket.outcome, ticket.reason) for ticket in desk.tickets]


GONE = (Outcome.CANCELLED, Reason.CLIENT_GONE)


async def test_the_ticket_begins_with_the_headers(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n")
    client.send(b"X-Stainless-Retry-Count: 2\r\nContent-Length: 2\r\n\r\n")
    await door.until(lambda: len(door.desk.tickets) == 1)
    assert door.desk.tickets[0].door == "http"
    assert ("x-stainless-retry-count", "2") in door.desk.headers[0]
    client.send(b"{}")
    status, headers, _ = await client.response()
    assert (status, headers["x-request-id"]) == (400, "mine")


async def test_client_gone_amid_its_body(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(post({"prompt": "x"})[:-3])
    await door.until(lambda: len(door.desk.tickets) == 1)
    client.close()
    await door.until(lambda: ends(door.desk) == [GONE])
    await door.until(lambda: door.server.connections == 0)
    assert door.server.buffered_bytes == 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("half", [True, False])
async def test_client_gone_amid_the_answer(open_door: OpenDoor, stream: bool, half: bool) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(post({"prompt": "x", "stream": stream}))
    await door.until(lambda: len(door.desk.calls) == 1)
    call = door.desk.calls[0]
    call.emit([256])
    if half:
        client.writer.write_eof()  # sends nothing more, but could still read: counts as gone
    else:
        client.close()
    await door.until(lambda: call.cancelled == GONE)
    await door.until(lambda: door.server.connections == 0)
    call.emit([256])  # the desk's last words reach nobody, and break nothing


async def test_an_end_of_sending_counts_although_answers_are_unsent(open_door: OpenDoor) -> None:
    door = await open_door(write_buffer_bytes=1024)
    call = await stalled_stream(door)
    door.clients[-1].writer.write_eof()
    await door.until(lambda: call.cancelled == GONE)


class SlowCodec(TextCodec):
    """Tokenises when it is told to go on."""

    def __init__(self, card: ModelCard) -> None:
        super().__init__(card)
        self.begun, self.go = threading.Event(), threading.Event()

    def encode(self, text: str, most: int | None = None) -> list[int]:
        self.begun.set()
        self.go.wait(5)
        return super().encode(text, most)


async def test_client_gone_while_its_prompt_is_tokenised(
    open_door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    card = tiny_card()
    codec = SlowCodec(card)
    door = await open_door(FakeDesk(TextModel(card.name, card, codec)), inline_body_bytes=0)
    client = await door.connect()
    client.send(post({"prompt": "x"}))
    await door.until(codec.begun.is_set)
    client.close()
    await door.until(lambda: ends(door.desk) == [GONE])
    codec.go.set()
    await door.until(lambda: len(asyncio.all_tasks()) == 1)  # this test's own
    assert (ends(door.desk), caplog.records) == ([GONE], [])


async def test_long_bodies_are_served_like_short_ones(open_door: OpenDoor) -> None:
    door = await open_door(FakeDesk(script=[256]), inline_body_bytes=100)
    for length in (10, 1000):
        status, _, body = await door.exchange(post({"prompt": "x" * length}))
        assert status == 200
        assert json.loads(body)["usage"]["prompt_tokens"] == length
    assert (await door.exchange(post({"prompt": "x" * 1000, "n": 0})))[0] == 400
    assert (await door.exchange(post({"prompt": "x" * 1000, "model": "no"})))[0] == 404


async def test_a_body_that_is_announced_too_large(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
    status, headers, body = await client.response()
    assert (status, headers["connection"]) == (413, "close")
    assert json.loads(body)["error"]["limit_name"] == "http.max_body_bytes"
    client.send(b"x" * 10_000_000)  # read away, so that the answer is not lost in a reset
    await client.writer.drain()
    assert ends(door.desk) == [(Outcome.INVALID, Reason.BODY_TOO_LARGE)]
    door.later(2)
    await door.until(lambda: door.server.connections == 0)


async def test_a_chunked_body_that_grows_too_large(open_door: OpenDoor) -> None:
    door = await open_door(max_body_bytes=1024)
    client = await door.connect()
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.send((b"200\r\n" + b"x" * 512 + b"\r\n") * 3)
    assert (await client.response())[0] == 413
    assert ends(door.desk) == [(Outcome.INVALID, Reason.BODY_TOO_LARGE)]


async def test_a_body_that_does_not_come(open_door: OpenDoor) -> None:
    door = await open_door(body_timeout=30)
    client = await door.connect()
    client.send(post({"prompt": "x"})[:-1])
    await door.until(lambda: len(door.desk.tickets) == 1)
    door.later(29)
    assert ends(door.desk) == [(None, Reason.NONE)]
    door.later(1)
    assert (await client.response())[0] == 408
    assert ends(door.desk) == [(Outcome.INVALID, Reason.BODY_TIMEOUT)]


async def test_unfinished_bodies_of_all_clients_have_one_budget(open_door: OpenDoor) -> None:
    door = await open_door(max_buffered_bytes=3000)
    half = post({"prompt": "x" * 3000})[:2000]
    first, second = await door.connect(), await door.connect()
    first.send(half)
    await door.until(lambda: door.server.buffered_bytes > 1500)
    second.send(half)
    status, _, body = await second.response()
    assert (status, json.loads(body)["error"]["reason"]) == (429, "buffered_bytes")
    first.close()
    await door.until(lambda: door.server.buffered_bytes == 0)


async def test_a_reader_that_stalls_is_cut_off(open_door: OpenDoor) -> None:
    door = await open_door(write_buffer_bytes=1024, slow_reader_timeout=10)
    call = await stalled_stream(door)
    door.later(9)
    assert call.cancelled is None
    door.later(1)
    assert call.cancelled == (Outcome.CANCELLED, Reason.SLOW_READER)
    await door.until(lambda: door.server.connections == 0)


async def test_a_reader_far_behind_is_cut_off_at_once(open_door: OpenDoor) -> None:
    door = await open_door(write_buffer_bytes=1024, max_write_buffer_bytes=64 * 1024)
    call = await stalled_stream(door)
    for _ in range(1000):
        call.emit([256] * 50)
    door.later(0)
    assert call.cancelled == (Outcome.CANCELLED, Reason.SLOW_READER)


async def stalled_stream(door: Door) -> FakeCall:
    """A stream whose client reads nothing, filled until the door had to wait."""
    client = await door.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(post({"prompt": "x", "stream": True}))
    await door.until(lambda: len(door.desk.calls) == 1)
    for _ in range(100_000):
        door.desk.calls[0].emit([256] * 20)
        if door.server.unsent_bytes > 2048:
            break
        await asyncio.sleep(0)
    return door.desk.calls[0]


async def test_a_reader_that_catches_up_is_served_to_the_end(open_door: OpenDoor) -> None:
    door = await open_door(write_buffer_bytes=1024, slow_reader_timeout=10)
    call = await stalled_stream(door)
    door.later(9)
    client = door.clients[-1]
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    answer = asyncio.create_task(client.response())
    await door.until(lambda: door.server.unsent_bytes == 0)
    door.later(9)
    call.end()
    assert (await answer)[2].endswith(b"data: [DONE]\n\n")
    assert call.cancelled is None


async def test_a_whole_answer_may_take_its_time_while_it_is_being_read(open_door: OpenDoor) -> None:
    page = b"x" * (24 << 20)
    door = await open_door(
        metrics=lambda accept: lambda: (page, "text/plain"),
        write_buffer_bytes=1024,
        max_write_buffer_bytes=64 * 1024,
        slow_reader_timeout=10,
    )
    client = await door.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    await door.until(lambda: door.server.unsent_bytes > 64 * 1024)
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(2):
        unsent = door.server.unsent_bytes
        await client.reader.readexactly(4 << 20)
        await door.until(lambda before=unsent: door.server.unsent_bytes <= before - 1024)  # type: ignore[misc]
        door.later(9)
        await door.settle()
        assert door.server.unsent_bytes > 0
    door.later(10)
    await door.until(lambda: door.server.unsent_bytes == 0)


async def test_a_slow_reader_is_not_taken_for_an_idle_client(open_door: OpenDoor) -> None:
    door = await open_door(write_buffer_bytes=1024, slow_reader_timeout=10, idle_timeout=5)
    call = await stalled_stream(door)
    call.end()
    door.later(6)
    client = door.clients[-1]
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert (await client.response())[2].endswith(b"data: [DONE]\n\n")
    client.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await client.response())[0] == 200


async def test_last_bytes_that_are_never_taken_do_not_hold_the_connection(
    open_door: OpenDoor,
) -> None:
    door = await open_door(write_buffer_bytes=2**26, slow_reader_timeout=10)
    door.server.drain()  # so that the answer's end closes the connection
    call = await stalled_stream(door)
    call.end()
    door.later(9)
    assert door.server.connections == 1
    door.later(1)
    await door.until(lambda: door.server.connections == 0)


class BrokenDesk(FakeDesk):
    """A desk whose submit() has a bug."""

    def submit(self, ticket: Ticket, served: TextModel, ask: Ask, listener: Listener) -> FakeCall:
        raise KeyError("a bug")


async def test_a_bug_is_a_500_and_stands_in_the_log(
    open_door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    door = await open_door(BrokenDesk())
    status, headers, body = await door.exchange(post({"prompt": "secret words"}))
    assert (status, headers["x-should-retry"]) == (500, "false")
    assert b"secret" not in body
    assert "a bug" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "fields",
    [{"n": 5_000_000}, {"logprobs": 10**9}, {"max_tokens": 10**30}, {"stop": ["x"] * 10_000}],
)
async def test_huge_numbers_cost_nothing(open_door: OpenDoor, fields: dict[str, object]) -> None:
    door = await open_door()
    await door.exchange(post({"prompt": "x", "n": 0}))  # first use of everything
    tracemalloc.start()
    status, _, body = await door.exchange(post({"prompt": "x", **fields}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert status == 400
    assert json.loads(body)["error"]["param"] in fields
    assert peak < 2_000_000


async def test_every_ticket_ends_once_under_random_departures(open_door: OpenDoor) -> None:
    """Clients leave at random points of random requests; FakeDesk refuses a second end."""
    rng = random.Random(7)
    door = await open_door(FakeDesk(script=[256] * 5), inline_body_bytes=60)
    clients: list[RawClient] = []
    for _ in range(300):
        client = await door.connect()
        clients.append(client)
        request = post({"prompt": "x" * rng.randrange(60), "stream": rng.random() < 0.5})
        client.send(request[: rng.randrange(len(request) * 2)])
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if rng.random() < 0.8:
            client.close()
    for client in clients:
        client.close()
    await door.until(lambda: door.server.connections == 0)
    await door.until(lambda: all(ticket.outcome is not None for ticket in door.desk.tickets))
    assert {outcome for outcome, _ in ends(door.desk)} == {Outcome.OK, Outcome.CANCELLED}
    assert door.server.buffered_bytes == 0
