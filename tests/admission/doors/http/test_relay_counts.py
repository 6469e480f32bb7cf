"""Streams written past the books: however they end, what their clients got was counted."""

from collections.abc import AsyncIterator

import pytest
from tests.admission.doors.http.relay_rig import Relayed, relaying
from tests.engine.backends.remote.played_server import Peer
from tests.engine.backends.remote.rig import EVENT, HEAD
from tests.fakes_http import RawClient

from surgetank.engine.backends.remote import turn
from surgetank.telemetry.vocabulary import Outcome

DONE = b"e\r\ndata: [DONE]\n\n\r\n"


async def streamed(relayed: Relayed, *parts: bytes, ask: str = "") -> tuple[RawClient, Peer]:
    """A stream whose client has got its head and these parts, each on its own."""
    client = await relayed.ask(headers=ask, stream=True)
    engine = await relayed.engine.peer()
    await engine.request()
    await engine.say(HEAD + EVENT)
    await client.reader.readuntil(EVENT)
    for part in parts:
        await engine.say(part)
        await client.reader.readexactly(len(part))
    return client, engine


@pytest.fixture
async def relayed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Relayed]:
    """Nothing is counted before a stream's end but by the end."""
    monkeypatch.setattr(turn, "_LATER", 60.0)
    async with relaying() as relayed:
        yield relayed


async def test_a_client_that_leaves_amid_its_stream(relayed: Relayed) -> None:
    client, _ = await streamed(relayed, EVENT, EVENT)
    client.close()
    assert [outcome for outcome, _ in await relayed.ended()] == [Outcome.CANCELLED]
    assert relayed.desk.recent()[0].ticket.output_tokens == 3


async def test_a_client_that_leaves_at_its_streams_last_event(relayed: Relayed) -> None:
    client, _ = await streamed(relayed, EVENT, EVENT, DONE)
    client.close()
    assert [outcome for outcome, _ in await relayed.ended()] == [Outcome.OK]
    assert relayed.desk.recent()[0].ticket.output_tokens == 4  # its last event is one, as ever


async def test_an_engine_that_is_lost_amid_streams(relayed: Relayed) -> None:
    await streamed(relayed, EVENT, EVENT)
    relayed.probe.there = False
    assert [outcome for outcome, _ in await relayed.ended()] == [Outcome.BACKEND_DOWN]
    assert relayed.desk.recent()[0].ticket.output_tokens == 3


async def test_a_connection_that_breaks_amid_its_stream(relayed: Relayed) -> None:
    _, engine = await streamed(relayed, EVENT, EVENT)
    engine.writer.transport.abort()
    assert [outcome for outcome, _ in await relayed.ended()] == [Outcome.BACKEND_DOWN]
    assert relayed.desk.recent()[0].ticket.output_tokens == 3


async def test_a_stream_that_is_late(relayed: Relayed) -> None:
    await streamed(relayed, EVENT, EVENT, ask="x-surgetank-timeout: 0.2\r\n")
    relayed.clock.advance(1.0)
    assert [outcome for outcome, _ in await relayed.ended()] == [Outcome.DEADLINE]
    assert relayed.desk.recent()[0].ticket.output_tokens == 3
