"""What an engine did not answer goes to another one, but for what engines die of."""

from tests.admission.rig import Rig, refused

from surgetank.admission import refusals
from surgetank.admission.gate import GateConfig
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.side import SideState
from surgetank.telemetry.vocabulary import Outcome, Reason


def test_a_request_moves_as_often_as_is_allowed() -> None:
    rig = Rig(engines=4, routing=RoutingConfig(moves=2))
    call = rig.send().call
    assert call is not None
    for moves in range(3):
        assert (call.ticket.outcome, len(call.ticket.turned_away)) == (None, moves)
        rig.desk.turned_away(call, refusals.pushback(429))
    assert call.ticket.outcome is Outcome.OVERLOAD


def die_with_it(rig: Rig) -> None:
    """Kill the engine that has the request."""
    next(backend for backend in rig.backends if backend.open).die()


def test_what_two_engines_died_of_goes_to_no_third() -> None:
    rig = Rig(engines=4, routing=RoutingConfig(moves=3))
    door = rig.send()
    die_with_it(rig)
    assert door.outcome is None
    die_with_it(rig)
    told = refused(door)
    assert (told.outcome, told.reason) == (Outcome.BACKEND_DOWN, Reason.ENGINES_LOST)
    assert told.retry_after is None  # it should not be sent again
    assert "2 engines were lost while they worked on this request" in told.message
    looks = rig.desk.snapshot().engines
    assert [each.state for each in looks] == [*[SideState.DOWN] * 2, *[SideState.UP] * 2]


def test_what_is_sent_again_after_an_engine_died_of_it_is_remembered() -> None:
    rig = Rig(engines=3)
    doors = [rig.send(prompt=7)]
    die_with_it(rig)
    (backend,) = (each for each in rig.backends if each.open)
    backend.emit(min(backend.open), "a")
    backend.die()  # in the middle of the answer
    assert refused(doors[0]).reason is Reason.ENGINES_LOST
    again = rig.send(prompt=7)  # its client does not listen
    die_with_it(rig)
    told = refused(again)
    assert told.reason is Reason.ENGINES_LOST
    assert "3 engines were lost" in told.message
    rig.backends[0].come_up()
    rig.backends[1].come_up()
    third = rig.send(prompt=7).call
    assert third is not None
    rig.desk.turned_away(third, refusals.pushback(429))  # nobody has begun with it
    assert (third.ticket.deaths, third.ticket.outcome) == (3, None)
    third.cancel()
    rig.backends[1].die()
    other = rig.send(prompt=8)
    die_with_it(rig)
    assert refused(other).reason is Reason.ENGINE_LOST


def test_what_waits_while_engines_die_is_not_suspected() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=3)
    doors = [rig.send(prompt=each) for each in (1, 2, 3, 4)]
    rig.backends[0].die()
    rig.backends[1].die()
    waiting = doors[3].call
    assert waiting is not None
    assert (waiting.ticket.deaths, waiting.ticket.outcome) == (0, None)
    assert [door.call.ticket.deaths for door in doors if door.call] == [1, 1, 0, 0]


def test_the_time_in_an_engine_that_was_lost_is_no_waiting() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    rig.send()
    rig.send()
    rig.timer.advance(10.0)
    rig.backends[0].die()
    rig.timer.advance(2.0)
    rig.backends[1].finish(min(rig.backends[1].open))
    told = {each.spec.name: each.samples for each in rig.recorder.registry.read()}
    waits = [each for each in told["queue_wait_seconds"].values() if not isinstance(each, float)]
    assert (sum(each.count for each in waits), sum(each.sum for each in waits)) == (3, 2.0)
