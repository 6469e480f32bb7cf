"""Engines come, go, drain and serve something else: who gets requests, and who is told what."""

import pytest
from tests.admission.rig import CARD, Door, Rig, refused
from tests.fakes import tiny_card

from surgetank.admission import refusals
from surgetank.admission.api import Ask
from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.outcome import Refused
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.engines import UnknownEngine, largest
from surgetank.admission.routing.side import SideState
from surgetank.engine.api import SamplingParams
from surgetank.telemetry.vocabulary import Outcome, Reason


def states(rig: Rig) -> list[SideState]:
    return [each.state for each in rig.desk.snapshot().engines]


def held(rig: Rig) -> list[int]:
    """Requests in each engine, as we count them; the engines count the same."""
    ours = [each.dispatched for each in rig.desk.snapshot().engines]
    assert ours == [len(backend.open) for backend in rig.backends]
    return ours


def test_requests_are_spread_and_each_engine_has_its_own_slots() -> None:
    rig = Rig(engines=3)
    for _ in range(24):
        rig.send()
    assert held(rig) == [8, 8, 8]
    rig.send()
    assert rig.queued == 1
    rig.backends[1].finish(min(rig.backends[1].open))
    assert held(rig) == [8, 8, 8]
    assert rig.queued == 0


def test_what_a_lost_engine_had_not_begun_to_answer_goes_to_the_others() -> None:
    rig = Rig(engines=3)
    doors = [rig.send() for _ in range(6)]
    spoken = min(rig.backends[0].open)
    rig.backends[0].emit(spoken, "a")
    rig.backends[0].die()
    assert held(rig) == [0, 3, 2]
    assert states(rig) == [SideState.DOWN, SideState.UP, SideState.UP]
    lost = [door for door in doors if door.outcome is not None]
    assert [door.outcome for door in lost] == [Outcome.BACKEND_DOWN]
    assert lost[0].text == "a"  # after its first byte nothing moves
    assert rig.desk.snapshot().engines[0].moved_away == 1
    moved = next(each for each in rig.desk.peek.live() if each.turned_away)
    assert (moved.turned_away, moved.engine) == (("0",), "1")
    assert any(what.startswith("moved from 0: backend down") for _, what in moved.events)
    rig.check_conservation()


def test_a_moved_request_goes_before_the_others_of_its_class() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    first, second = rig.send(), rig.send()
    waiting = rig.send()
    rig.backends[0].die()
    assert rig.queued == 2
    assert first.call is not None
    assert first.call.ticket.unused_tokens == 4 + 8  # nothing was read for it
    rig.backends[1].finish(min(rig.backends[1].open))
    assert second.outcome is Outcome.OK
    (running,) = rig.backends[1].open
    rig.backends[1].finish(running)
    assert first.outcome is Outcome.OK
    assert waiting.outcome is None


def test_an_engine_that_turned_a_request_away_is_not_asked_again() -> None:
    rig = Rig(engines=2)
    rig.send()
    call = rig.send().call
    assert call is not None
    assert call.ticket.engine == "1"
    rig.desk.turned_away(call, refusals.pushback(429))
    assert call.ticket.engine == "0"
    assert held(rig) == [2, 0]
    assert rig.desk.snapshot().engines[1].faults == 0  # to be full is no fault
    rig.desk.turned_away(call, refusals.pushback(429))
    assert call.ticket.outcome is Outcome.OVERLOAD
    assert held(rig) == [1, 0]


def test_without_any_engine_all_that_waits_is_told() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    doors = [rig.send() for _ in range(4)]
    rig.backends[0].die()
    assert rig.queued == 3
    rig.backends[1].die()
    assert {door.outcome for door in doors} == {Outcome.BACKEND_DOWN}
    assert not rig.desk.ready()
    rig.backends[1].come_up()
    assert rig.desk.ready()
    rig.check_conservation()


def test_a_draining_engine_finishes_and_gets_no_more() -> None:
    rig = Rig(engines=2)
    running = [rig.send() for _ in range(2)]
    rig.desk.engines.drain("0")
    assert states(rig) == [SideState.DRAINING, SideState.UP]
    for _ in range(7):
        rig.send()
    assert held(rig) == [1, 8]
    rig.backends[0].finish(min(rig.backends[0].open))
    assert running[0].outcome is Outcome.OK
    rig.send()
    assert held(rig) == [0, 8]
    rig.desk.engines.undrain("0")
    assert held(rig) == [1, 8]


def test_when_all_drain_requests_are_refused_and_what_runs_goes_on() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    first, second, waiting = rig.send(), rig.send(), rig.send()
    rig.desk.engines.drain("0")
    rig.desk.engines.drain("1")
    told = refused(waiting)
    assert (told.outcome, told.reason) == (Outcome.DRAINING, Reason.OPERATOR)
    assert told.message == "draining: no engine takes requests: 0 is drained, 1 is drained"
    with pytest.raises(Refused) as refusal:
        rig.desk.find("default")
    assert refusal.value.refusal.message == told.message
    for backend in rig.backends:
        backend.finish(min(backend.open))
    assert (first.outcome, second.outcome) == (Outcome.OK, Outcome.OK)


def test_who_drains_all_engines_is_told_beside_those_that_are_down() -> None:
    rig = Rig(engines=3)
    rig.backends[2].die()
    rig.desk.engines.drain("0", "ann: driver 580")
    rig.desk.engines.drain("1", "bob: new model")
    down = rig.desk.engines.absent()
    assert (down.outcome, down.reason) == (Outcome.BACKEND_DOWN, Reason.ENGINE_LOST)
    assert down.message == (
        "backend down: no engine takes requests: 0 is drained by ann: driver 580, "
        "1 is drained by bob: new model, 2 is not connected"
    )
    rig.desk.engines.drain("2", "ann: driver 580")
    assert rig.desk.engines.absent().reason is Reason.OPERATOR
    rig.desk.engines.undrain("1")
    assert rig.desk.engines.absent("it ended").message == "backend down: it ended"
    assert rig.desk.ready()


def test_an_engine_that_takes_no_connections_gets_nothing_and_may_complete_what_it_has() -> None:
    rig = Rig(engines=2)
    first, second = rig.send(), rig.send()
    rig.backends[0].card = None  # its watchers do not know yet
    assert states(rig) == [SideState.DOWN, SideState.UP]
    for _ in range(3):
        rig.send()
    assert held(rig) == [1, 4]
    rig.backends[0].finish(min(rig.backends[0].open))
    assert (first.outcome, second.outcome) == (Outcome.OK, None)
    rig.backends[1].card = None
    assert not rig.desk.ready()
    assert not rig.desk.snapshot().backend_up
    assert refused(rig.send()).message == "backend down: the engine is not connected"


def test_another_process_at_the_same_place_is_learned_anew_with_what_it_has() -> None:
    rig = Rig(engines=2)
    rig.timer.advance(60.0)
    door = rig.send(prompt=5)
    rig.desk.engines.hold("0", 3.0)
    assert [look.restarts for look in rig.desk.snapshot().engines] == [0, 0]
    rig.backends[0].come_up()  # seen at a look, without having been away
    look = rig.desk.snapshot().engines[0]
    assert (look.state, look.restarts, look.dispatched) == (SideState.SLOW_START, 1, 1)
    assert (look.learned_slots, look.unread) == (None, 5)
    rig.backends[0].finish(min(rig.backends[0].open))
    assert door.outcome is Outcome.OK
    assert rig.desk.snapshot().engines[0].unread == 0
    rig.backends[0].die()
    rig.backends[0].come_up()
    assert rig.desk.snapshot().engines[0].restarts == 2


def test_an_unknown_engine_is_named_with_those_there_are() -> None:
    rig = Rig(engines=2)
    with pytest.raises(UnknownEngine, match=r"no engine 'x'; there are: 0, 1"):
        rig.desk.engines.drain("x")


def test_another_model_gets_nothing_until_the_first_is_gone() -> None:
    rig = Rig(engines=2)
    rig.backends[1].die()
    rig.backends[1].come_up(tiny_card(name="other"))
    assert states(rig) == [SideState.UP, SideState.OTHER_MODEL]
    for _ in range(9):
        rig.send()
    assert held(rig) == [8, 0]
    before = rig.desk.find("default")
    rig.backends[0].die()
    assert rig.queued == 0  # what waited for the first is not sent to the other
    assert rig.desk.names()[0] == "other"
    with pytest.raises(Refused, match="backend down"):  # nor what was read for it
        rig.desk.submit(rig.arrive(), before, Ask([1], SamplingParams(max_tokens=1)), Door())
    rig.send()
    assert held(rig) == [0, 1]
    rig.backends[0].come_up(CARD)
    assert states(rig)[0] is SideState.OTHER_MODEL


def test_faults_eject_and_time_brings_back() -> None:
    rig = Rig(engines=2, routing=RoutingConfig(eject_after=2, eject_for=10, moves=0, slow_start=0))
    for _ in range(2):
        while True:
            call = rig.send().call
            assert call is not None
            if call.ticket.engine == "0":
                break
        rig.desk.turned_away(call, refusals.backend_down("the engine hung up"))
    look = rig.desk.snapshot().engines[0]
    assert (look.state, look.ejections, look.back_at) == (SideState.EJECTED, 1, 10.0)
    before = held(rig)
    rig.send()
    assert held(rig) == [before[0], before[1] + 1]
    rig.timer.advance(10.0)
    assert states(rig) == [SideState.UP, SideState.UP]


def test_what_waits_goes_to_an_engine_as_soon_as_it_is_back() -> None:
    routing = RoutingConfig(eject_after=1, eject_for=10, moves=0, slow_start=0)
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2, routing=routing)
    call, _, waiting = rig.send().call, rig.send(), rig.send()
    assert call is not None
    rig.desk.turned_away(call, refusals.backend_down("the engine hung up"))
    rig.timer.advance(9.9)
    assert (held(rig), rig.queued) == ([0, 1], 1)
    rig.timer.advance(0.1)
    assert (held(rig), rig.queued) == ([1, 1], 0)
    assert waiting.outcome is None


def test_of_two_engines_one_stays_in_and_all_are_in_when_none_else_is_there() -> None:
    rig = Rig(engines=2, routing=RoutingConfig(eject_after=1, moves=0))
    for _ in range(8):
        call = rig.send().call
        assert call is not None
        rig.desk.turned_away(call, refusals.backend_down("the engine hung up"))
    assert sorted(states(rig)) == [SideState.EJECTED, SideState.UP]
    other = 0 if states(rig)[0] is SideState.UP else 1
    rig.timer.advance(1.0)
    rig.backends[other].die()
    assert rig.send().outcome is None  # better a doubtful engine than none
    assert held(rig)[1 - other] == 1
    look = rig.desk.snapshot().engines[1 - other]
    assert (look.state, look.since, look.back_at) == (SideState.UP, 1.0, None)
    rig.backends[other].come_up()
    assert sorted(states(rig)) == [SideState.EJECTED, SideState.UP]


def test_what_goes_down_with_its_engine_is_no_fault_of_the_next() -> None:
    rig = Rig(engines=2, routing=RoutingConfig(eject_after=1))
    for _ in range(6):
        rig.send()
    rig.backends[0].die()
    assert rig.desk.snapshot().engines[0].faults == 0
    rig.backends[0].come_up()
    assert rig.desk.snapshot().engines[0].ejections == 0


def test_limits_follow_the_largest_engine_and_hold_each_to_its_own() -> None:
    rig = Rig(engines=2)
    rig.backends[1].die()
    rig.backends[1].come_up(tiny_card(max_num_seqs=20))
    assert rig.desk.snapshot().view(Limit.IN_FLIGHT_SEQS).maximum == 20
    rig.timer.advance(30.0)  # of slow start
    for _ in range(40):
        rig.send()
    assert held(rig) == [8, 20]
    rig.desk.engines.hold("1", 21.0)
    assert rig.desk.snapshot().engines[1].slots == 20


def test_an_engine_that_came_later_gets_a_part_of_its_slots_at_first() -> None:
    rig = Rig(engines=2)
    rig.timer.advance(60.0)
    rig.backends[1].die()
    rig.backends[1].come_up(tiny_card(max_num_seqs=20))
    rig.timer.advance(10.0)  # .1 + .9 * 10/30 = .4 of 20
    for _ in range(40):
        rig.send()
    assert held(rig) == [8, 8]
    assert states(rig) == [SideState.UP, SideState.SLOW_START]
    rig.timer.advance(10.0)
    rig.backends[0].finish(min(rig.backends[0].open))
    assert held(rig) == [8, 14]


def test_a_request_goes_only_where_it_fits() -> None:
    rig = Rig(engines=2)
    rig.backends[1].die()
    rig.backends[1].come_up(tiny_card(context_length=4096, kv_blocks=1024))
    for _ in range(3):
        assert rig.send(prompt=3000).outcome is None
    assert held(rig)[0] == 0
    assert rig.send(prompt=5000).outcome is Outcome.INVALID


def test_what_needs_the_context_of_one_and_the_memory_of_another_fits_none() -> None:
    rig = Rig(engines=2)
    rig.backends[1].die()
    rig.backends[1].come_up(tiny_card(context_length=4096, kv_blocks=100))
    rig.backends[0].die()
    rig.backends[0].come_up(tiny_card(kv_blocks=1024))
    too_large = refused(rig.send(prompt=3000))
    assert (too_large.outcome, too_large.limit_name) == (Outcome.INVALID, "kv_blocks")
    assert rig.send(prompt=1500).outcome is None
    rig.desk.engines.drain("0")
    assert rig.send(prompt=1800).outcome is None
    assert rig.queued == 1  # only the one that drains can run it
    rig.desk.engines.undrain("0")
    assert rig.queued == 0


def test_the_largest_of_all_sizes() -> None:
    small, large = tiny_card(), tiny_card(kv_blocks=1000, context_length=0, max_num_seqs=2)
    card = largest([small, large])
    assert (card.kv_blocks, card.context_length, card.max_num_seqs) == (1000, 0, 8)
    assert largest([small]) is small
