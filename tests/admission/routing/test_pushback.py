"""An engine that turns requests away comes after the others, the longer the more often it does."""

from tests.admission.rig import Rig

from surgetank.admission import refusals
from surgetank.admission.gate import GateConfig
from surgetank.admission.routing.pushback import Pushback, refused


def test_the_pause_doubles_up_to_two_seconds() -> None:
    pushback, pauses = Pushback(), []
    for _ in range(8):
        pushback = refused(pushback, 10.0)
        pauses.append(round(pushback.until - 10.0, 3))
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert (pushback.lasts(11.9), pushback.lasts(12.1)) == (True, False)


def one_is_turned_away(rig: Rig) -> None:
    """By the first engine; the second has it then."""
    call = rig.send().call
    assert call is not None
    assert call.ticket.engine == "0"
    rig.desk.turned_away(call, refusals.pushback(503))
    assert open_in(rig) == [0, 1]


def open_in(rig: Rig) -> list[int]:
    return [len(backend.open) for backend in rig.backends]


def test_an_idle_engine_that_refuses_is_not_asked_by_each_request() -> None:
    rig = Rig(engines=2)
    one_is_turned_away(rig)
    rig.send()
    assert open_in(rig) == [0, 2]
    rig.timer.advance(0.06)
    rig.send()
    assert open_in(rig) == [1, 2]


def test_it_gets_what_no_other_has_room_for() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    one_is_turned_away(rig)
    rig.send()
    assert open_in(rig) == [1, 1]


def test_after_an_answer_the_pause_is_the_shortest_again() -> None:
    rig = Rig(engines=2)
    one_is_turned_away(rig)
    rig.timer.advance(0.06)
    rig.send()
    rig.backends[0].finish(min(rig.backends[0].open))
    call = rig.send().call
    assert call is not None
    rig.desk.turned_away(call, refusals.pushback(429))
    assert open_in(rig) == [0, 2]
    rig.timer.advance(0.06)
    rig.send()
    assert open_in(rig) == [1, 2]
