"""What a remote engine tells of itself is known, and so is what it has stopped to tell."""

from functools import partial

import pytest
from tests.engine.backends.remote.rig import END, EVENT, HEAD, Answer, running

from surgetank.engine.backends.remote.found import UNKNOWN, Signals, Vitals
from surgetank.engine.backends.remote.watch import MISSES


def has(events: int, answer: Answer) -> bool:
    return answer.events == events


FULL = b"HTTP/1.1 %d Full\r\ncontent-length: 0\r\n\r\n"


async def test_before_an_engine_was_ever_there_nothing_is_known_of_it() -> None:
    async with running() as rig:
        await rig.seen.until(1)
        assert rig.backend.vitals.kind == "vllm"
        assert rig.backend.vitals.url == rig.backend.url
    fresh = Vitals(UNKNOWN, "http://x")
    assert fresh.foreign
    assert fresh.age(9.0) is None
    assert not Vitals().foreign


async def test_our_count_is_compared_with_its_own_at_the_same_moment() -> None:
    async with running() as rig:
        rig.send()
        rig.send(seqs=4)
        await rig.probe.after(looks=2)
        assert rig.backend.vitals.drift is None  # it tells no count
        rig.probe.signals = Signals(at=1.0, running=2.0, waiting=1.0)
        await rig.probe.after(looks=2)
        assert rig.backend.vitals.drift == 5 - 3
        rig.probe.there = False
        await rig.seen.until(2)
        assert rig.backend.vitals.drift is None
        assert rig.backend.vitals.signals.at == 1.0  # its age goes on
        assert rig.backend.vitals.found is None


@pytest.mark.parametrize(("status", "counts"), [(429, 1), (503, 1), (529, 1), (500, 0), (400, 0)])
async def test_what_it_turns_away_is_counted(status: int, counts: int) -> None:
    async with running() as rig:
        answer = rig.send(stream=False)
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(FULL % status)
        await answer.until(lambda answer: answer.usage)
        assert rig.backend.vitals.pushbacks == counts


async def test_an_engine_too_busy_for_looks_is_there_while_it_answers_requests() -> None:
    async with running() as rig:
        answer = rig.send()
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(HEAD)
        rig.probe.deaf = True
        for events in range(1, 4 * MISSES):
            rig.clock.advance(0.1)
            await peer.say(EVENT)
            await answer.until(partial(has, events))
            await rig.probe.after(looks=0)
        assert answer.lost is None
        await peer.say(END)
        await rig.seen.until(2)  # silent in everything: gone
        assert rig.seen.told == ["up", "nobody answers"]


async def test_how_full_an_idle_engine_is_reaches_the_gate_once() -> None:
    async with running() as rig:
        rig.probe.signals = Signals(at=1.0, kv_used=0.25)
        await rig.probe.after(looks=5)
        (told,) = [step.record for step in rig.seen.steps if step.record is not None]
        assert told.kv_used == told.kv_free / 3  # of a pool of which the size is not known
        assert told.prefill_tokens + told.decode_tokens == 0
        assert rig.backend.last_step is None  # it was no step
