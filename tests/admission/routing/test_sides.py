"""Several engines as one: what they do together, and which of them count."""

from math import inf

import pytest
from tests.admission.rig import PlayedBackend
from tests.fakes import step_record, tiny_card

from surgetank.admission.cost import engine_seconds
from surgetank.admission.engine_view import Rates
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.side import Attached, EngineSide, SideState
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import Ticket
from surgetank.engine.backends.remote.config import Role
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.vocabulary import Outcome, Reason

CARD = tiny_card()
TICKET = Ticket("1", 0.0, "http")


def rates(factor: float, drain: float = 1.0) -> Rates:
    """Of an engine whose every step takes `factor` times as long."""
    model = StepModel(0.01 * factor, 1e-4 * factor, 1e-3 * factor, 1e-6 * factor)
    return Rates(model, drain, 8.0, 256.0, 4, 1000, 0.02 * factor)


def sides(count: int, *, now: float = 0.0, roles: tuple[Role, ...] = ()) -> Sides:
    """So many that are up."""
    backends = [PlayedBackend(ManualClock()) for _ in range(count)]
    attached = [
        Attached(backend, str(at), roles[at] if roles else Role.BOTH)
        for at, backend in enumerate(backends)
    ]
    made = Sides(attached, RoutingConfig())
    for side, backend in zip(made.all, backends, strict=True):
        backend.card = CARD
        side.came_up(CARD, now)
    made.look(now)
    return made


def knows(made: Sides, *known: Rates | None) -> None:
    for side, each in zip(made.all, known, strict=True):
        side.view.rates = each
        made.learned()


def test_what_they_serve_together_is_the_sum_of_what_each_does() -> None:
    made = sides(3, now=-60.0)
    knows(made, rates(1.0), rates(3.0), rates(1.0, drain=0.5))
    made.mean_prompt = 64.0
    made.learned()
    made.look(0.0)
    assert made.rates is not None
    assert made.rates.drain == 2.5

    def cost(each: Rates) -> float:
        return engine_seconds(each.model, each.batch, 64.0, 128.0, 1)

    served = 1.0 / cost(rates(1.0)) * (1.0 + 1.0 / 3.0 + 0.5)
    assert made.rates.drain / cost(made.rates) == pytest.approx(served)


def test_one_that_is_not_known_counts_as_the_others() -> None:
    made = sides(2)
    knows(made, rates(2.0), None)
    made.look(0.0)
    assert made.rates is not None
    assert made.rates.drain == 2.0
    assert made.rates.model == rates(2.0).model
    pace = made.pace(made.all[1], 0.0)
    assert pace is not None
    assert (pace.drain, pace.model) == (1.0, rates(2.0).model)


def test_one_engine_is_the_whole() -> None:
    made = sides(1)
    knows(made, rates(1.0))
    assert made.rates is made.all[0].view.rates
    assert made.whole is made.all[0].ledger


def test_a_new_engine_counts_for_the_slots_that_it_gets() -> None:
    made = sides(2, now=-60.0)
    made.all[1].came_up(CARD, 0.0)
    knows(made, rates(1.0), rates(1.0))
    made.look(0.0)
    assert made.rates is not None
    assert made.rates.drain == pytest.approx(1.1)
    assert [side.slots(8.0) for side in made.all] == [8.0, 1.0]
    assert [made.portion(side) for side in made.all] == pytest.approx([1.0 / 1.1, 0.1 / 1.1])
    made.look(15.0)
    assert made.rates.drain == pytest.approx(1.55)
    assert made.all[1].slots(8.0) == pytest.approx(4.4)


def test_that_an_engine_was_slow_fades_while_it_is_idle() -> None:
    made = sides(2)
    knows(made, rates(1.0, drain=0.25), rates(1.0))
    backend = made.all[0].engine
    assert isinstance(backend, PlayedBackend)
    backend.last_step = step_record(at=0.0)

    def drain(now: float) -> float:
        pace = made.pace(made.all[0], now)
        assert pace is not None
        return pace.drain

    assert drain(0.0) == 0.25
    assert drain(10.0) == pytest.approx(0.5)
    permit = made.all[0].ledger.take(1, 1)
    assert drain(60.0) == 0.25  # it works, and shows what it does
    permit.success()
    assert drain(60.0) > 0.97


def names(open: tuple[EngineSide, ...]) -> str:
    return "".join(side.name for side in open)


def test_who_may_get_requests() -> None:
    made = sides(3)
    first, second, third = (side.engine for side in made.all)
    assert isinstance(first, PlayedBackend)
    assert isinstance(second, PlayedBackend)
    assert isinstance(third, PlayedBackend)
    assert names(made.look(0.0)) == "012"
    first.stalled = 3.0
    assert names(made.look(0.0)) == "12"
    second.stalled = third.stalled = 2.0
    assert names(made.look(0.0)) == "012"  # all are: the wait tells
    assert made.age(0.0) == pytest.approx(2.0 - 0.25)
    second.stalled = 0.0
    made.all[1].drained_at = 1.0
    assert names(made.look(1.0)) == "02"
    third.card = None
    assert names(made.look(1.0)) == "0"
    assert made.all[1].state(1.0) is SideState.DRAINING


def test_a_role_keeps_an_engine_out() -> None:
    made = sides(2, roles=(Role.PREFILL, Role.DECODE))
    assert names(made.look(0.0)) == "1"
    assert made.all[0].state(0.0) is SideState.PREFILL_ONLY


def test_one_that_hangs_is_out_once_enough_was_given_up() -> None:
    made = sides(2)
    hung = made.all[0]
    assert isinstance(hung.engine, PlayedBackend)
    hung.engine.stalled = 3.0
    for _ in range(5):
        assert hung.state(1.0) is SideState.UP
        made.observe(hung, TICKET, Outcome.CANCELLED, Reason.CLIENT_GONE, 1.0)
    hung.engine.stalled = 0.0  # it has nothing any more
    assert names(made.look(2.0)) == "1"


def test_another_process_begins_anew() -> None:
    made = sides(2)
    side = made.all[0]
    for _ in range(5):
        made.observe(side, TICKET, Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, 10.0)
    side.most, side.crowded, side.kv_used = 3.0, True, 0.5
    assert side.state(10.0) is SideState.EJECTED
    side.went_down(11.0)
    assert side.state(11.0) is SideState.DOWN
    side.came_up(CARD, 12.0)
    assert names(made.look(12.0)) == "01"
    (fresh, _) = made.all
    assert (fresh.most, fresh.crowded, fresh.kv_used) == (inf, False, None)
    assert (side.standing.faults, side.standing.ejections) == (0, 1)  # the count goes on


def test_no_more_than_half_are_ejected_and_their_return_is_known() -> None:
    made = sides(3)
    for side in made.all:
        for _ in range(5):
            out = made.observe(side, TICKET, Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, 10.0)
        assert out is (side.name == "0")
    assert names(made.look(10.0)) == "12"
    assert made.next_return(10.0) == 40.0
    assert made.all[0].since(SideState.EJECTED) == 10.0
    assert names(made.look(40.0)) == "012"
    assert made.all[0].state(40.0) is SideState.SLOW_START
