"""A remote engine is found, asked, hung up on, lost and found again; no answer is half told."""

import asyncio

import pytest
from tests.engine.backends.remote.rig import END, EVENT, HEAD, Answer, running

from surgetank.engine.api import BackendDown
from surgetank.engine.backends.remote.api import Forward, Usage
from surgetank.engine.backends.remote.backend import AT_ONCE
from surgetank.engine.backends.remote.found import Signals
from surgetank.engine.backends.remote.upstream import Upstream
from surgetank.engine.backends.remote.watch import MISSES

PLAIN_BODY = b'{"usage":{"prompt_tokens":5,"completion_tokens":2}}'
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(PLAIN_BODY), PLAIN_BODY)


async def test_bytes_pass_untouched_in_both_directions_and_the_connection_is_used_again() -> None:
    async with running() as rig:
        first = rig.send(b'{"a": 1}')
        peer = await rig.server.peer()
        line, headers, body = await peer.request()
        assert line == "POST /base/v1/x HTTP/1.1"
        assert headers["authorization"] == "Bearer secret"
        assert headers["content-type"] == "application/json"
        assert body == b'{"a": 1}'
        sent = EVENT * 3 + END
        await peer.say(HEAD[:20])
        await peer.say(HEAD[20:] + sent[:5])
        await peer.say(sent[5:])
        await first.until(lambda answer: answer.usage)
        assert first.data == sent
        assert first.events == 3
        second = rig.send(stream=False)
        await peer.request()
        await peer.say(PLAIN)
        await second.until(lambda answer: answer.usage)
        assert second.usage == Usage(5, 2)
        assert second.data == PLAIN_BODY
        assert rig.server.accepted == 1


async def test_an_answer_that_breaks_off_is_lost_and_not_done() -> None:
    async with running() as rig:
        answer = rig.send()
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(HEAD + EVENT)
        await answer.until(lambda answer: answer.data)
        peer.close()
        await answer.until(lambda answer: answer.lost)
        assert answer.usage is None


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async with running() as rig:
        answer = rig.send(http_1_0=True)
        peer = await rig.server.peer()
        line, _, _ = await peer.request()
        assert line.endswith("HTTP/1.0")
        await peer.say(b"HTTP/1.0 200 OK\r\n\r\ndata: 1\n\ndata: 2\n\n")
        peer.close()
        await answer.until(lambda answer: answer.usage)
        assert answer.events == 2


async def test_a_kept_connection_that_was_closed_costs_the_request_nothing() -> None:
    async with running() as rig:
        first = rig.send(stream=False)
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(PLAIN)
        await first.until(lambda answer: answer.usage)
        second = rig.send(stream=False)
        await peer.request()
        peer.close()  # before it said anything
        again = await rig.server.peer()
        await again.request()
        await again.say(PLAIN)
        await second.until(lambda answer: answer.usage)
        assert rig.server.accepted == 2


@pytest.mark.parametrize(("said", "later"), [(PLAIN[:10], 0.0), (b"", AT_ONCE)])
async def test_what_the_engine_may_have_worked_on_is_not_sent_again(
    said: bytes, later: float
) -> None:
    async with running() as rig:
        first = rig.send(stream=False)
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(PLAIN)
        await first.until(lambda answer: answer.usage)
        second = rig.send(stream=False)
        await peer.request()
        rig.clock.advance(later)
        await peer.say(said)
        peer.close()
        await second.until(lambda answer: answer.lost)
        assert rig.server.accepted == 1


@pytest.mark.parametrize("begun", [False, True])
async def test_cancelling_hangs_up(begun: bool) -> None:
    async with running() as rig:
        answer = rig.send()
        peer = await rig.server.peer()
        await peer.request()
        if begun:
            await peer.say(HEAD + EVENT)
            await answer.until(lambda answer: answer.data)
        rig.backend.cancel(rig.last)
        assert await peer.gone()
        assert answer.lost is None
        assert answer.usage is None
        assert rig.backend.stalled_for(1e9) == 0.0


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot a size\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
    ],
)
async def test_what_is_no_answer_is_a_lost_request(said: bytes) -> None:
    async with running() as rig:
        answer = rig.send()
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(said)
        await answer.until(lambda answer: answer.lost)


async def test_an_interim_answer_is_not_the_answer() -> None:
    async with running() as rig:
        answer = rig.send(stream=False)
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + PLAIN)
        await answer.until(lambda answer: answer.usage)
        assert answer.head is not None
        assert answer.head.status == 200


async def test_bytes_after_an_answer_end_the_connection() -> None:
    async with running() as rig:
        answer = rig.send(stream=False)
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(PLAIN + b"HTTP/1.1 200 OK\r\n")
        await answer.until(lambda answer: answer.usage)
        assert await peer.gone()


async def test_an_engine_that_stops_answering_is_lost_with_its_requests_and_found_again() -> None:
    async with running() as rig:
        answer = rig.send()
        await (await rig.server.peer()).request()
        rig.probe.there = False
        await rig.seen.until(2)
        assert rig.seen.told == ["up", "nobody answers"]
        assert answer.lost == "the engine was lost"
        assert rig.backend.card is None
        assert rig.backend.stalled_for(0.0) is None
        with pytest.raises(BackendDown, match="the engine is not there"):
            rig.send()
        rig.probe.there = True
        await rig.seen.until(3)
        assert rig.backend.models == ("m", "lora")


async def test_one_that_answers_again_as_another_is_lost_and_found() -> None:
    """It was started anew between two looks, too fast to count as gone."""
    async with running() as rig:
        rig.probe.deaf, rig.probe.model = True, "other"
        await rig.probe.after(1)
        rig.probe.deaf = False
        await rig.seen.until(3)
        assert rig.seen.told == ["up", "it was started anew, without m", "up"]
        assert rig.backend.card is not None
        assert rig.backend.card.name == "other"


async def test_metrics_that_fail_grow_old() -> None:
    async with running() as rig:
        rig.probe.signals = Signals(at=7.0, waiting=2.0)
        await rig.probe.after(1)
        rig.probe.signals = Signals()
        await rig.probe.after(1)
        assert rig.backend.signals == Signals(at=7.0)
        assert not any(rig.backend.vitals.available().values())


async def test_a_fault_in_what_it_tells_is_no_end_of_looking(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as rig:
        rig.probe.fault = ValueError("no number")
        await rig.seen.until(3)
        rig.probe.fault = None
        assert rig.seen.told[1] == "it cannot be followed: ValueError('no number')"
        assert rig.seen.told[2] == "up"
        assert "Traceback" in caplog.text


def test_one_missed_look_is_no_loss() -> None:
    assert MISSES > 1


async def test_clients_keys_are_not_for_an_engine_that_has_its_own() -> None:
    async with running() as rig:
        given = (("authorization", "Bearer theirs"), ("x-api-key", "theirs"), ("accept", "*/*"))
        rig.backend.forward(1, Forward("/v1/x", given, b"{}", 10), Answer())
        peer = await rig.server.peer()
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert b"authorization: Bearer secret\r\n" in head
        assert b"accept: */*\r\n" in head
        assert b"theirs" not in head


async def test_nothing_listens_at_the_address() -> None:
    async with running() as rig:
        rig.backend._lines = Upstream(
            "http://127.0.0.1:1", rig.clock, rig.backend.spoke_directly
        )  # nobody may listen there
        answer = rig.send()
        await answer.until(lambda answer: answer.lost)
        assert answer.lost is not None
        assert answer.lost == "the engine cannot be reached: connection refused"


async def test_metrics_that_come_and_go_are_no_sign_of_work() -> None:
    async with running() as rig:
        rig.backend.told(told := Signals(at=0.0, output_tokens=7.0))
        rig.send()
        for signals in (Signals(), told):
            rig.clock.advance(2.0)
            rig.backend.told(signals)
        assert rig.backend.stalled_for(rig.clock.monotonic()) == 4.0
        rig.backend.told(Signals(at=4.0, output_tokens=8.0))
        assert rig.backend.stalled_for(rig.clock.monotonic()) == 0.0


async def test_silence_counts_only_of_what_gives_signs() -> None:
    async with running() as rig:
        rig.send(stream=False)
        rig.clock.advance(5.0)
        assert rig.backend.stalled_for(rig.clock.monotonic()) == 0.0
        rig.send()
        rig.clock.advance(2.0)
        assert rig.backend.stalled_for(rig.clock.monotonic()) == 2.0
        rig.backend.cancel(rig.last)
        assert rig.backend.stalled_for(rig.clock.monotonic()) == 0.0


async def test_a_held_answer_is_not_read_until_it_is_let_go() -> None:
    async with running() as rig:
        answer = rig.send()
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(HEAD + EVENT)
        await answer.until(lambda answer: answer.data)
        rig.backend.hold(rig.last, held=True)
        big = b"data: " + b"x" * 32_000_000 + b"\n\n"
        telling = asyncio.create_task(peer.say(b"%x\r\n%b\r\n" % (len(big), big)))
        await asyncio.sleep(0.05)
        assert not telling.done()  # the kernel's buffers are full, and nobody reads
        assert answer.data == EVENT
        rig.backend.hold(rig.last, held=False)
        await answer.until(lambda answer: len(answer.data) > len(big))
        await telling


async def test_steps_are_told_to_watchers() -> None:
    async with running() as rig:
        answer = rig.send()
        peer = await rig.server.peer()
        await peer.request()
        await peer.say(HEAD + EVENT)
        await answer.until(lambda answer: answer.events == 1)
        rig.clock.advance(0.1)
        await peer.say(EVENT)
        await answer.until(lambda answer: answer.events == 2)
        assert len(rig.seen.steps) == 1
        assert rig.backend.last_step is not None
        assert rig.backend.last_step.prefill_tokens == 10
