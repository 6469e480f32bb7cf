"""Connections to an engine: the parts of one turn, their order, and which connections are kept."""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from tests.engine.backends.remote.played_server import played_server

from surgetank.engine.backends.remote.api import AnswerHead, Forward, Usage
from surgetank.engine.backends.remote.turn import Turn
from surgetank.engine.backends.remote.upstream import Connection, Upstream, unreachable
from surgetank.telemetry.clock import ManualClock

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
TO_CLOSE = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
ASK = Forward("/v1/completions", (), b"{}", 1, stream=True)


class Wire:
    """A transport that keeps nothing."""

    aborted = False
    reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: bytes) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    close = abort


class Heard:
    """A sink that writes down what it hears, under its name."""

    def __init__(self, name: str, log: list[str], fails: bool = False) -> None:
        self._name, self._log, self._fails = name, log, fails

    def on_head(self, head: AnswerHead) -> None:
        self._log.append(f"{self._name} {head.status}")

    def on_data(self, data: bytes, events: int, between: bool) -> None:
        if self._fails:
            raise ZeroDivisionError
        self._log.append(f"{self._name} {len(data)}")

    def on_done(self, usage: Usage) -> None:
        self._log.append(f"{self._name} done")

    def on_lost(self, detail: str, begun: bool = True) -> None:
        self._log.append(f"{self._name} lost: {detail}")

    def direct(self) -> Callable[[bytes], None] | None:
        return None

    def on_events(self, events: int, now: float) -> None:
        raise AssertionError("nothing is written past it")


class Straight(Heard):
    """One whose client is written to directly."""

    def direct(self) -> Callable[[bytes], None] | None:
        return lambda data: self._log.append(f"{self._name} straight {len(data)}")


def unheard(spoken: Sequence[tuple[Heard, int]], at: float) -> None:
    """Nobody counts."""


def asked(turn: Turn[Heard], sink: Heard, head: bytes = HEAD) -> Connection[Heard]:
    nothing = cast(Callable[[Connection[Heard]], None], lambda connection: None)
    made = Connection(turn, nothing, nothing, lambda request: b"")
    made.connection_made(cast(Any, Wire()))
    made.send(ASK, sink)
    made.data_received(head)
    return made


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(5000):
        if holds():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came true")


def chunk(size: int) -> bytes:
    return b"%x\r\n%b\r\n" % (size, b"x" * size)


def token(text: bytes) -> bytes:
    event = b"data: " + text + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


async def test_parts_of_one_turn_are_passed_on_together_and_in_order() -> None:
    turn, log = Turn(unheard, ManualClock()), list[str]()
    first, second = asked(turn, Heard("a", log)), asked(turn, Heard("b", log))
    for connection, size in ((first, 1), (second, 2), (first, 3)):
        connection.data_received(chunk(size))
    assert log == ["a 200", "b 200"]
    await asyncio.sleep(0)
    assert log[2:] == ["a 6", "b 7", "a 8"]


async def test_a_large_part_is_passed_on_at_once_after_those_before_it() -> None:
    turn, log = Turn(unheard, ManualClock()), list[str]()
    first, second = asked(turn, Heard("a", log)), asked(turn, Heard("b", log))
    first.data_received(chunk(1))
    second.data_received(chunk(10_000))
    assert log[2:] == ["a 6", "b 10008"]


async def test_one_that_fails_takes_nothing_from_the_others() -> None:
    turn, log = Turn(unheard, ManualClock()), list[str]()
    bad, good = asked(turn, Heard("bad", log, fails=True)), asked(turn, Heard("good", log))
    bad.data_received(chunk(1))
    good.data_received(chunk(1))
    await asyncio.sleep(0)
    assert log[2:] == ["bad lost: a fault in the sidecar", "good 6"]


async def test_whole_chunks_are_written_directly_and_then_counted_together() -> None:
    clock, log, told = ManualClock(), list[str](), list[tuple[str, int, float]]()

    def spoke(spoken: Sequence[tuple[Heard, int]], at: float) -> None:
        told.extend((sink._name, events, at) for sink, events in spoken)

    turn = Turn(spoke, clock)
    first, second = asked(turn, Straight("a", log)), asked(turn, Straight("b", log))
    log.clear()
    for connection, part in ((first, token(b"2")), (second, token(b"3")), (first, chunk(5))):
        connection.data_received(part)
    await asyncio.sleep(0)
    assert log == ["a straight 14", "b straight 14", "a straight 10"]
    assert not told
    clock.advance(0.001)
    second.data_received(token(b"4") * 2)
    await until(lambda: told != [])
    assert told == [("a", 1, 0.0), ("b", 1, 0.0)]


async def test_a_write_that_fails_takes_nothing_from_the_others() -> None:
    class Broken(Heard):
        def direct(self) -> Callable[[bytes], None] | None:
            return cast(Callable[[bytes], None], abs)  # of bytes: a TypeError

    turn, log = Turn(unheard, ManualClock()), list[str]()
    bad, good = asked(turn, Broken("bad", log)), asked(turn, Straight("good", log))
    for connection in (bad, good):
        connection.data_received(token(b"1"))
    await asyncio.sleep(0)
    assert log[2:] == ["bad lost: a fault in the sidecar", "good straight 14"]


async def test_nothing_is_written_of_one_that_ends_when_another_breaks() -> None:
    class Broken(Heard):
        def direct(self) -> Callable[[bytes], None] | None:
            return cast(Callable[[bytes], None], abs)  # of bytes: a TypeError

        def on_lost(self, detail: str, begun: bool = True) -> None:
            other.hang_up()

    turn, log = Turn(unheard, ManualClock()), list[str]()
    bad, other = asked(turn, Broken("bad", log)), asked(turn, Straight("other", log))
    log.clear()
    for connection in (bad, other):
        connection.data_received(token(b"1"))
    await asyncio.sleep(0)
    assert log == []


async def test_what_cannot_be_counted_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    def spoke(spoken: Sequence[tuple[Heard, int]], at: float) -> None:
        raise ZeroDivisionError

    log = list[str]()
    made = asked(Turn(spoke, ManualClock()), Straight("a", log))
    for part in (token(b"1"), b"0\r\n\r\n"):
        made.data_received(part)
        await asyncio.sleep(0)
    assert log[1:] == ["a straight 14", "a 5", "a done"]
    assert "events could not be counted" in caplog.text


async def test_what_is_no_whole_chunk_waits_for_what_came_before_it() -> None:
    log = list[str]()
    made = asked(Turn(unheard, ManualClock()), Straight("a", log))
    made.data_received(token(b"1"))
    await asyncio.sleep(0)
    log.clear()
    whole = token(b"2")
    for part in (whole, whole[:9], whole[9:], whole):
        made.data_received(part)
    await asyncio.sleep(0)
    assert log == ["a straight 14", "a 9", "a 5", "a straight 14"]


async def test_nothing_is_written_directly_to_a_client_that_is_behind_or_gone() -> None:
    log = list[str]()
    made = asked(Turn(unheard, ManualClock()), Straight("a", log))
    made.data_received(token(b"1"))
    await asyncio.sleep(0)
    log.clear()
    made.hold(True)
    made.data_received(token(b"2"))
    await asyncio.sleep(0)
    assert log == ["a 14"]
    made.data_received(token(b"3"))
    made.hang_up()
    await asyncio.sleep(0)
    assert log == ["a 14"]


async def test_the_last_bytes_tell_the_usage_also_of_what_was_written_directly() -> None:
    log = list[str]()
    sink = Straight("a", log)
    told = list[Usage]()
    sink.on_done = told.append  # type: ignore[method-assign, assignment]
    made = asked(Turn(unheard, ManualClock()), sink)
    for part in (token(b"1"), token(b'{"usage": {"completion_tokens": 7}}'), b"0\r\n\r\n"):
        made.data_received(part)
        await asyncio.sleep(0)
    assert [usage.output_tokens for usage in told] == [7]


async def test_the_end_of_a_connection_comes_after_its_parts() -> None:
    log = list[str]()
    closing = asked(Turn(unheard, ManualClock()), Heard("a", log), TO_CLOSE)
    closing.data_received(b"the end")
    closing.connection_lost(None)
    assert log == ["a 200", "a 7", "a done"]


async def test_an_idle_connection_that_the_engine_closes_is_forgotten() -> None:
    async with played_server() as server:
        upstream, log = Upstream(server.url, ManualClock(), unheard), list[str]()
        connection = await upstream.connect()
        connection.send(ASK, Heard("a", log))
        peer = await server.peer()
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await until(lambda: upstream.idle == 1)
        peer.close()
        await until(lambda: upstream.idle == 0)
    assert log == ["a 200", "a done"]
    assert upstream.take() is None


async def test_a_connection_held_by_its_last_part_reads_what_comes_next() -> None:
    """A slow client may be noticed while the end of its answer is written to it."""
    kept: list[Connection[Heard]] = []
    turn, wire, log = Turn(unheard, ManualClock()), Wire(), list[str]()
    made = Connection(turn, kept.append, lambda _: None, lambda _: b"")
    made.connection_made(cast(Any, wire))

    class Slow(Heard):
        def on_data(self, data: bytes, events: int, between: bool) -> None:
            super().on_data(data, events, between)
            made.hold(True)

    made.send(ASK, Slow("a", log))
    made.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n" + b"x" * 9000)
    await until(lambda: "a done" in log)
    assert kept == [made]
    assert wire.reading


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError(), "timed out"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "('10.0.0.7', 80)"), "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "no connection"),
        (OSError("Multiple exceptions: ('10.0.0.7', 80)"), "no connection"),
    ],
)
def test_why_nobody_is_reached_tells_no_address(error: OSError, why: str) -> None:
    assert unreachable(error) == why
