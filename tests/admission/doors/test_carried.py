"""A request that a proxy carries ends once and gives its slot back once, whatever is seen of it."""

from collections.abc import AsyncIterator

import pytest
from tests.admission.doors.carriage_rig import URL, CarriageRig, KeepingDoor, carriage_rig
from tests.engine.backends.remote.rig import Answer

from surgetank.admission.doors.carried import BlindOrder, Carried
from surgetank.engine.api import BackendDown
from surgetank.engine.backends.remote.api import Usage
from surgetank.telemetry.vocabulary import Outcome, Reason


@pytest.fixture
async def rig() -> AsyncIterator[CarriageRig]:
    async with carriage_rig() as rig:
        yield rig


def ask(rig: CarriageRig, door: KeepingDoor, *, stream: bool = False) -> Carried:
    carried = Carried(rig.carriage, door, "envoy", [], "", "/v1/completions")
    carried.ask(BlindOrder("/v1/completions", carried.ticket.id, 8, 4, stream=stream))
    return carried


async def test_it_is_let_go_counted_and_over(rig: CarriageRig) -> None:
    door = KeepingDoor()
    carried = ask(rig, door, stream=True)
    assert [url for url, _ in door.went] == [URL]
    assert rig.dispatched == 1
    carried.answered(200)
    rig.clock.advance(0.5)
    carried.spoke(2)
    assert carried.ticket.first_token_at == rig.clock.monotonic()
    carried.done(Usage(prompt_tokens=9, output_tokens=3))
    assert door.over == [None]
    assert (carried.ticket.output_tokens, rig.dispatched) == (3, 0)
    assert rig.ended() == [(Outcome.OK, Reason.NONE)]


async def test_what_nobody_counted_teaches_nothing(rig: CarriageRig) -> None:
    first = ask(rig, KeepingDoor(), stream=True)
    rig.clock.advance(5)
    assert rig.backend.stalled_for(rig.clock.monotonic()) == 0.0
    first.done()
    for _ in range(100):
        each = ask(rig, KeepingDoor(), stream=True)
        each.answered(200)
        each.spoke(1)
        each.done()
    assert each.ticket.output_tokens == 0
    assert each.ticket.estimate.reserve == first.ticket.estimate.reserve == 4


async def test_after_its_end_nothing_is_heard(rig: CarriageRig) -> None:
    door = KeepingDoor()
    carried = ask(rig, door)
    carried.done()
    carried.done()
    carried.answered(503)
    carried.spoke(1)
    carried.abandon()
    assert door.over == [None]
    assert rig.ended() == [(Outcome.OK, Reason.NONE)]


async def test_the_second_waits_and_the_third_is_refused(rig: CarriageRig) -> None:
    doors = [KeepingDoor() for _ in range(3)]
    first, _, _ = [ask(rig, door) for door in doors]
    assert [len(door.went) for door in doors] == [1, 0, 0]
    refusal = doors[2].over[0]
    assert refusal is not None
    assert refusal.reason is Reason.QUEUE_REQUESTS
    assert (refusal.retry_after or 0) >= 0.05
    first.abandon()
    assert [len(door.went) for door in doors] == [1, 1, 0]
    assert rig.dispatched == 1


async def test_who_leaves_the_queue_gives_its_place_back(rig: CarriageRig) -> None:
    ask(rig, KeepingDoor())
    waiting = ask(rig, KeepingDoor())
    waiting.abandon()
    assert rig.desk.snapshot().queue_requests == 0
    assert rig.ended() == [(Outcome.CANCELLED, Reason.CLIENT_GONE)]


async def test_an_answer_before_it_was_let_go_ends_it(rig: CarriageRig) -> None:
    ask(rig, KeepingDoor())
    door = KeepingDoor()
    ask(rig, door).answered(408)
    assert (door.went, rig.desk.snapshot().queue_requests) == ([], 0)


async def test_a_full_engine_is_pushback(rig: CarriageRig) -> None:
    door = KeepingDoor()
    ask(rig, door).answered(503)
    refusal = door.over[0]
    assert refusal is not None
    assert (refusal.outcome, refusal.reason) == (Outcome.OVERLOAD, Reason.ENGINE_FULL)
    assert rig.dispatched == 0


async def test_it_can_be_brought_to_one_engine_only(rig: CarriageRig) -> None:
    door = KeepingDoor()
    carried = ask(rig, door)
    with pytest.raises(BackendDown, match="another engine"):
        rig.backend.forward(99, door.went[0][1], Answer())
    carried.done()
    assert rig.ended() == [(Outcome.OK, Reason.NONE)]


async def test_a_lost_engine_ends_it(rig: CarriageRig) -> None:
    door = KeepingDoor()
    ask(rig, door)
    await rig.backend.aclose()
    assert [each and each.outcome for each in door.over] == [Outcome.BACKEND_DOWN]


async def test_requests_that_are_not_seen_are_never_the_same(rig: CarriageRig) -> None:
    first = ask(rig, KeepingDoor())
    first.abandon()
    second = ask(rig, KeepingDoor())
    assert second.ticket.attempt == 0
    assert first.ticket.fingerprint != second.ticket.fingerprint
