"""The console's frames: what they say of played traffic, and what they remember."""

import msgspec
import pytest
from tests.control.console.stage import Stage
from tests.fakes import step_record

from surgetank.admission.limits import Limit
from surgetank.control.console.feed import Feed, event
from surgetank.control.console.frame import Frame, Point
from surgetank.control.console.meter import StepMeter
from surgetank.engine.api import StepOutput
from surgetank.telemetry.clock import ManualClock


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_calm_service_is_ready_and_healthy(stage: Stage) -> None:
    frame = stage.calm(20)
    assert (frame.state, frame.verdict.word) == ("ready", "healthy")
    assert frame.arrivals.first == pytest.approx(12, rel=0.5)
    assert frame.arrivals.retry == frame.arrivals.unread == 0
    assert frame.gate.admitted == pytest.approx(frame.arrivals.first)
    assert frame.outcomes["ok"] == pytest.approx(12, rel=0.5)
    assert frame.engine is not None
    assert sum(frame.engine.slots.values()) == pytest.approx(1.0)
    assert frame.engine.steps is not None
    assert 0.008 < frame.engine.steps.p50 <= frame.engine.steps.p99
    assert frame.kv is not None
    assert frame.kv.used + frame.kv.cached + frame.kv.free == frame.kv.blocks
    (engine,) = frame.engines
    assert (engine.name, engine.state, engine.slots, engine.drain) == ("embedded", "up", 16, None)
    assert engine.requests >= 200


def test_a_storm_shows_in_its_rates_reasons_and_refusals(stage: Stage) -> None:
    stage.calm(60)
    stage.play(10, rate=40, tries=4)
    stage.freeze(6)
    frame = stage.play(20, rate=40, tries=4)
    assert frame.verdict.word == "clients"
    assert frame.arrivals.retry > frame.arrivals.first > 20
    assert frame.gate.refused == pytest.approx(sum(rate for _, rate in frame.gate.reasons))
    assert frame.gate.reasons[0][0] == "retry_budget"
    newest = frame.refusals[0]
    assert newest.at <= frame.at
    assert [each.at for each in frame.refusals] == sorted(
        (each.at for each in frame.refusals), reverse=True
    )
    assert newest.reason in newest.message or newest.limit_name in newest.message
    assert all(each.outcome != "cancelled" for each in frame.refusals)


def test_every_arrival_is_in_one_lane_or_unread(stage: Stage) -> None:
    stage.calm(3)
    stage.drain.begin("ada", "update", None)
    frame = stage.play(6, rate=10)
    assert frame.state == "draining"
    assert frame.drain is not None
    assert (frame.drain.who, frame.drain.expires_in) == ("ada", None)
    assert frame.arrivals.first == frame.gate.admitted == 0
    assert frame.arrivals.unread == pytest.approx(frame.outcomes["draining"])
    assert frame.arrivals.unread > 5


def test_states_follow_the_engine_and_the_traffic(stage: Stage) -> None:
    stage.calm(60)
    stage.freeze(30)
    frame = stage.play(6, rate=8)
    assert frame.state == "stalled"
    stage.die()
    frame = stage.play(3, rate=8)
    assert (frame.state, frame.engine, frame.kv, frame.model) == ("backend_down", None, None, None)
    assert frame.outcomes["backend_down"] > 0
    assert Stage().play(9).state == "ready"
    frame = Stage().play(11)
    assert frame.state == "idle"
    assert frame.idle_for == pytest.approx(10, abs=1)


def test_limits_and_journal_come_with_their_owner(stage: Stage) -> None:
    stage.actions.set_limit("queue_requests", 64, ttl=600, who="ada", why="burst")
    frame = stage.play(2)
    line = next(line for line in frame.limits if line.name == "queue_requests")
    assert (line.value, line.base) == (64, 256)
    assert line.override is not None
    assert (line.override.who, line.override.expires_in) == ("ada", 598)
    assert (frame.journal[0].what, frame.journal[0].after) == (Limit.QUEUE_REQUESTS, 64)
    assert len(frame.limits) == len(Limit)


def test_the_ring_keeps_ten_minutes_by_column(stage: Stage) -> None:
    first = stage.play(1)
    frame = stage.play(650)
    history = msgspec.json.decode(stage.feed.history())
    assert list(history) == list(Point.__struct_fields__)
    assert len(history["at"]) == 600
    assert history["at"][-1] - history["at"][0] == pytest.approx(599)
    assert history["at"][-1] == frame.point.at > first.point.at
    assert msgspec.json.decode(Feed().history())["at"] == []


async def test_a_reader_gets_the_history_then_each_frame(stage: Stage) -> None:
    stage.play(3)
    reader = stage.feed.follow()
    assert (await anext(reader)).startswith(b'event: history\ndata: {"at":[')
    first = _decode(await anext(reader))
    stage.play(1)
    assert _decode(await anext(reader)).number == first.number + 1
    stage.play(3)
    assert _decode(await anext(reader)).number == first.number + 4, (
        "missed frames are not caught up"
    )
    stage.play(30)
    assert (await anext(reader)).startswith(b"event: history"), "too many missed: the charts anew"
    assert _decode(await anext(reader)).number == first.number + 34
    stage.feed.close()
    assert [text async for text in reader] == []


def test_steps_are_metered_over_ten_seconds() -> None:
    clock = ManualClock()
    meter = StepMeter(clock)
    meter.on_step(StepOutput([], [], step_record(forward=0.5)))
    clock.advance(11)
    before = meter.counts()
    meter.on_step(StepOutput([], [], step_record(prefill_tokens=7, slots_filled=2)))
    meter.on_step(StepOutput([], [], step_record(decode_tokens=0, forward=9.0)))
    meter.on_step(StepOutput([], [], None))
    assert meter.seconds.quantile(0.99) == pytest.approx(0.02)
    since = meter.counts().since(before)
    assert (since.slots[:2], since.prefill, since.decode) == ((3, 6), 7, 1)


def test_an_event_is_one_line_of_json() -> None:
    text = event("frame", msgspec.json.encode({"why": "two\nlines"}))
    assert text == b'event: frame\ndata: {"why":"two\\nlines"}\n\n'


def _decode(text: bytes) -> Frame:
    return msgspec.json.decode(text.partition(b"data: ")[2], type=Frame)
