"""The embedded backend against an engine that comes, goes, stands still and talks nonsense."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engine.backends.fake_engine import FakeEngine, Log, backend_at, request
from tests.fakes import step_record, tiny_card

from surgetank.engine.api import PROTOCOL, BackendDown, Settings, Started, StepOutput, Tokens
from surgetank.engine.backends.embedded import EmbeddedBackend
from surgetank.engine.backends.remote.found import Vitals
from surgetank.telemetry.vocabulary import FinishReason, Move


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    engine = FakeEngine(tmp_path / "engine.sock")
    yield engine
    engine.thaw()
    await engine.stop()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def backend(engine: FakeEngine, log: Log) -> AsyncIterator[EmbeddedBackend]:
    """Connected to a running engine."""
    await engine.start()
    backend = backend_at(engine.path, log)
    await log.wait_for("up tiny")
    yield backend
    await backend.aclose()


async def test_one_turn_of_the_loop_makes_one_message(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log
) -> None:
    for request_id in (1, 2, 3):
        backend.submit(request(request_id, n=2), log.sink("r"))
    backend.cancel(2)  # not sent yet, so there is nothing to cancel
    backend.cancel(3, 1)
    backend.cancel(99)
    backend.apply(Settings(max_num_seqs=4))
    message = await engine.message()
    assert [each.request_id for each in message.submit] == [1, 3]
    assert message.cancel == [(3, 1)]
    assert message.settings == Settings(max_num_seqs=4)
    backend.cancel(1)
    assert (await engine.message()).cancel == [(1, -1)]
    assert engine.messages.empty()


async def test_a_step_reaches_the_sinks_in_order_and_then_the_watcher(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log
) -> None:
    for request_id, name in enumerate("abc", start=1):
        backend.submit(request(request_id, n=2), log.sink(name))
    backend.cancel(2)
    backend.cancel(3, 0)
    await engine.message()
    stop = FinishReason.STOP
    tokens = [
        Tokens(1, 0, [5]),
        Tokens(2, 0, [6]),  # cancelled while it was on its way
        Tokens(3, 0, [7]),
        Tokens(3, 1, [8], None, stop),
        Tokens(3, 1, [9]),  # after its end
    ]
    moved = [(1, Move.PREEMPTED), (2, Move.RESUMED)]
    engine.send(StepOutput(tokens, [Started(1, 0)], None, moved))
    await log.wait_for("step")
    assert log.heard[1:] == ["a started", "a preempted", "a.0 [5]", "c.1 [8] stop", "step"]


async def test_a_lost_engine_is_told_once_and_taken_back_with_its_settings(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log
) -> None:
    backend.apply(Settings(max_num_seqs=4))
    backend.apply(Settings(max_batch_tokens=99))
    assert (await engine.message()).settings == Settings(max_num_seqs=4, max_batch_tokens=99)
    backend.submit(request(1), log.sink("a"))
    backend.submit(request(2), log.sink("b"))
    await engine.message()
    engine.send(StepOutput([], [], step_record(kv_used=7)))
    await log.wait_for("step")
    assert backend.last_step is not None
    await engine.stop()
    await log.wait_for("down")
    assert log.heard[1:] == ["step", "a lost", "b lost", "down"]
    assert backend.card is None
    assert backend.last_step is None  # what it said of itself says nothing of the next engine
    assert backend.stalled_for(0.0) is None
    with pytest.raises(BackendDown, match=r"engine\.sock"):
        backend.submit(request(3), log.sink("c"))
    backend.apply(Settings(max_num_seqs=7))
    await engine.start(tiny_card(name="again"))
    await log.wait_for("up again")
    message = await engine.message()
    assert message.settings == Settings(max_num_seqs=7, max_batch_tokens=99)
    assert message.submit == []
    backend.submit(request(4), log.sink("d"))
    assert [each.request_id for each in (await engine.message()).submit] == [4]
    assert backend.last_step is None
    assert log.heard.count("down") == 1


async def test_the_engine_may_start_after_the_sidecar(engine: FakeEngine, log: Log) -> None:
    backend = backend_at(engine.path, log)
    with pytest.raises(BackendDown):
        backend.submit(request(1), log.sink("a"))
    await engine.start()
    await log.wait_for("up tiny")
    await backend.aclose()
    assert log.heard == ["up tiny", "down"]


async def test_closing_tells_the_open_requests(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log
) -> None:
    backend.submit(request(1), log.sink("a"))
    await backend.aclose()
    await backend.aclose()
    assert log.heard[1:] == ["a lost", "down"]


async def test_another_protocol_keeps_it_down_and_is_said_once(
    engine: FakeEngine, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await engine.start(protocol=999)
    backend = backend_at(engine.path, log)
    for _ in range(3):
        await asyncio.wait_for(engine.connections.get(), 5)
    assert backend.card is None
    assert log.heard == []
    await backend.aclose()
    assert caplog.text.count(f"protocol 999; ours is {PROTOCOL}") == 1


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02hi", b"HTTP/1.1 400 "])
async def test_a_peer_that_talks_nonsense_is_cut_off(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log, nonsense: bytes
) -> None:
    backend.submit(request(1), log.sink("a"))
    await engine.message()
    engine.send_raw(nonsense)
    await log.wait_for("up tiny", times=2)
    assert log.heard[1:] == ["a lost", "down", "up tiny"]


async def test_a_stopped_engine_blocks_nobody_and_what_piles_up_is_bounded(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log
) -> None:
    engine.freeze()
    sent, began = 0, time.monotonic()
    assert backend._link is not None
    while backend._link.writable:  # until the socket takes no more
        sent += 1
        backend.submit(request(sent, prompt=5000), log.sink("x"))
        await asyncio.sleep(0)
    for request_id in range(sent + 1, sent + 2001):  # clients that come and give up
        backend.submit(request(request_id, prompt=5000), log.sink("x"))
        if request_id > sent + 10:
            backend.cancel(request_id - 10)
        await asyncio.sleep(0)
    assert len(backend._outbox.submit) == 10
    assert len(backend._outbox.cancel) == 0
    backend.cancel(1)
    backend.cancel(1)
    assert len(backend._outbox.cancel) == 1
    assert backend.stalled_for(began + 3600) == pytest.approx(3600, abs=60)
    engine.thaw()
    received: list[int] = []
    while len(received) < sent + 10:
        received += [each.request_id for each in (await engine.message()).submit]
    assert received[-10:] == list(range(sent + 1991, sent + 2001))


async def test_the_stall_age_counts_only_while_there_is_work(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log
) -> None:
    later = time.monotonic() + 100
    assert backend.stalled_for(later) == 0.0
    backend.submit(request(1), log.sink("a"))
    assert backend.stalled_for(later) == pytest.approx(100, abs=30)
    await engine.message()
    engine.send(StepOutput([Tokens(1, 0, [5], None, FinishReason.STOP)], [], None))
    await log.wait_for("step")
    assert backend.stalled_for(later) == 0.0


async def test_its_count_is_compared_with_what_it_had_heard_of(
    backend: EmbeddedBackend, engine: FakeEngine, log: Log
) -> None:
    assert backend.vitals == Vitals(requests=0)
    backend.submit(request(1, n=2), log.sink("a"))
    await engine.message()
    backend.submit(request(2), log.sink("b"))
    backend.cancel(1, 0)
    await engine.message()
    engine.send(StepOutput([], [], step_record(running=(0, 2, 0, 0)), heard=1))
    await log.wait_for("step")
    assert backend.vitals == Vitals(drift=0, requests=2)
    engine.send(StepOutput([], [], step_record(running=(0, 1, 0, 0)), heard=2))
    await log.wait_for("step", times=2)
    assert backend.vitals == Vitals(drift=1, requests=2)  # one of them is lost
    await engine.stop()
    await log.wait_for("down")
    assert backend.vitals == Vitals(requests=0)
