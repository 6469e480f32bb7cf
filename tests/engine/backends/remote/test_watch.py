"""What a broken connection says of an engine is known at once; what a look shows, at that look."""

import pytest
from tests.engine.backends.remote.played_server import Peer
from tests.engine.backends.remote.rig import END, EVENT, HEAD, Answer, Rig, running

from surgetank.engine.api import BackendDown
from surgetank.engine.backends.remote.api import AnswerSink, Forward
from surgetank.engine.backends.remote.found import Signals
from surgetank.engine.backends.remote.upstream import Upstream

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
NOBODY = "http://127.0.0.1:1"


async def seldom(rig: Rig) -> None:
    """From now on it is looked at once in a hundred seconds, or when there is doubt."""
    rig.backend._watch._every = 100.0
    rig.backend._watch.doubt()
    await rig.probe.after(looks=0)


async def streaming(rig: Rig) -> tuple[Answer, Peer]:
    """A stream that has begun."""
    answer = rig.send()
    peer = await rig.server.peer()
    await peer.request()
    await peer.say(HEAD + EVENT)
    await answer.until(lambda answer: answer.events == 1)
    return answer, peer


async def test_a_killed_engine_is_down_at_once() -> None:
    """Its connections break with it, and so the look comes that is refused."""
    async with running() as rig:
        answer = rig.send()
        peer = await rig.server.peer()
        await peer.request()
        await seldom(rig)
        rig.probe.listens = False
        peer.close()
        await rig.seen.until(2)
        assert rig.seen.told == ["up", "connection refused"]
        assert (answer.lost, answer.begun) == ("the engine hung up", True)


async def test_one_that_refuses_a_connection_gets_no_more_and_is_down_at_once() -> None:
    async with running() as rig:
        await seldom(rig)
        rig.probe.listens = False
        rig.backend._lines = Upstream(NOBODY, rig.clock, rig.backend.spoke_directly)
        answer = rig.send()
        await answer.until(lambda answer: answer.lost)
        assert answer.begun is False  # it never got it
        assert rig.backend.card is None
        with pytest.raises(BackendDown):
            rig.send()
        await rig.seen.until(2)
        assert rig.seen.told == ["up", "connection refused"]


class Proxy:
    """Implements Carrier; nothing more is heard of what it took."""

    def go(self, url: str, request: Forward, sink: AnswerSink) -> None:
        pass


async def test_what_a_proxy_brought_to_a_lost_engine_may_have_been_begun() -> None:
    async with running() as rig:
        answer = Answer()
        rig.backend.forward(1, Forward("/v1/x", (), b"", 1, carrier=Proxy()), answer)
        rig.probe.listens = False
        await answer.until(lambda answer: answer.lost)
        assert (answer.lost, answer.begun) == ("the engine was lost", True)


async def test_one_that_stops_completes_what_it_has() -> None:
    async with running() as rig:
        answer, peer = await streaming(rig)
        rig.probe.listens = False
        await rig.probe.after(looks=5)  # more than a deaf one may miss
        assert rig.backend.card is None
        assert rig.seen.told == ["up"]
        await peer.say(EVENT + END)
        await answer.until(lambda answer: answer.usage)
        await rig.seen.until(2)
        assert rig.seen.told == ["up", "connection refused"]


async def test_one_that_listens_again_is_another() -> None:
    async with running() as rig:
        answer, _ = await streaming(rig)
        rig.probe.listens = False
        await rig.probe.after(looks=1)
        assert rig.backend.refuses
        rig.probe.listens = True
        await rig.seen.until(2)
        assert rig.seen.told == ["up", "up"]
        assert rig.backend.card is not None
        assert answer.lost is None


async def test_one_that_was_started_anew_between_two_looks_is_told_of_and_keeps_what_it_has() -> (
    None
):
    async with running() as rig:
        rig.probe.signals = Signals(at=1.0, output_tokens=500.0)
        answer, peer = await streaming(rig)
        await rig.probe.after(looks=1)
        rig.probe.signals = Signals(at=2.0, output_tokens=3.0)
        await rig.seen.until(2)
        assert rig.seen.told == ["up", "up"]
        await rig.probe.after(looks=3)
        assert rig.seen.told == ["up", "up"]
        await peer.say(EVENT + END)
        await answer.until(lambda answer: answer.usage)
        assert rig.backend.stalled_for(1e9) == 0.0


async def test_another_model_at_the_same_place_is_seen_without_a_missed_look() -> None:
    async with running() as rig:
        rig.probe.models, rig.probe.model = ("other",), "other"
        await rig.seen.until(3)
        assert rig.seen.told == ["up", "it serves other now, not m", "up"]
        assert rig.backend.card is not None
        assert rig.backend.card.name == "other"


async def test_one_that_hangs_on_plain_answers_is_silent_in_the_end() -> None:
    async with running() as rig:
        first = rig.send(stream=False)
        peer = await rig.server.peer()
        await peer.request()
        rig.clock.advance(30.0)
        await peer.say(PLAIN)
        await first.until(lambda answer: answer.usage)
        assert rig.backend.vitals.patience == 90.0
        rig.send(stream=False)
        rig.clock.advance(80.0)
        rig.send(stream=False)
        assert rig.backend.stalled_for(rig.clock.monotonic()) == 0.0
        rig.clock.advance(12.0)
        assert rig.backend.stalled_for(rig.clock.monotonic()) == 2.0
