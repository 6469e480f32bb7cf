"""What low classes leave to those above them, their floor share, the least queue, and waits."""

import pytest
from tests.admission.rig import PlayedBackend
from tests.fakes import tiny_card

from surgetank.admission.cost import Estimate
from surgetank.admission.engine_view import Rates
from surgetank.admission.laws import Laws
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limits
from surgetank.admission.pace import Pace
from surgetank.admission.queue import Queue
from surgetank.admission.room import Held
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.side import Attached
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.vocabulary import Lane, Priority

CARD = tiny_card(max_num_seqs=64, kv_blocks=100_000)
ATTACHED = Attached(PlayedBackend(ManualClock()))
RATES = Rates(StepModel(0.006, 25e-6, 50e-6, 40e-9), 1.0, 32.0, 1024.0, 30, 20_000, 0.02)


def ticket(priority: Priority, seconds: float) -> Ticket:
    """640 prompt tokens and 80 of output."""
    estimate = Estimate(80.0, 80, seconds)
    return Ticket("t", 0.0, "http", priority=priority, prompt_tokens=640, estimate=estimate)


class Engine:
    """Laws of an engine in which `running` such requests run."""

    def __init__(self, running: int) -> None:
        self.queue, sides = Queue(0.05), Sides([ATTACHED], RoutingConfig())
        config, targets = LawsConfig(), SloTargets()
        self.laws = Laws(
            config=config, targets=targets, limits=Limits(), queue=self.queue, sides=sides,
            pace=Pace(0.0),
        )  # fmt: skip
        (self.side,) = sides.all
        side = self.side
        side.came_up(CARD, 0.0)
        side.view.rates = RATES
        sides.learned()
        for _ in range(running):
            side.ledger.take(1, 1, prompt=640.0, output=80.0)


def test_low_classes_wait_for_short_steps_only_while_higher_ones_are_served() -> None:
    engine = Engine(running=30)
    low = ticket(Priority.BATCH, 0.05)
    assert engine.laws.held(low, 0.0) is None
    engine.queue.served(ticket(Priority.CRITICAL, 0.3), 0.0)
    assert engine.laws.held(low, 0.0) is Held.HEADROOM  # 27.7 leave steps short enough
    assert engine.laws.held(ticket(Priority.DEFAULT, 0.05), 0.0) is None
    assert Engine(running=26).laws.held(low, 0.0) is None


@pytest.mark.parametrize(("served", "held"), [(0.5, Held.HEADROOM), (1.0, None)])
def test_a_floor_share_that_is_due_needs_no_headroom(served: float, held: Held | None) -> None:
    engine = Engine(running=30)
    low = ticket(Priority.BATCH, 0.05)
    engine.queue.add(low, 0.0)
    engine.queue.served(ticket(Priority.CRITICAL, served), 0.0)  # of which low earns .0588 each
    assert engine.laws.held(low, 0.0) is held


def test_the_least_queue_is_of_what_requests_cost_from_the_first_on() -> None:
    laws = Engine(running=0).laws
    for seconds in (3.0, 1.0):
        laws.admitted(ticket(Priority.DEFAULT, seconds))
    assert laws.mean_cost == pytest.approx(2.0)
    assert laws.target(Priority.DEFAULT) == pytest.approx(4 * 2.0 / 0.7)
    for _ in range(200):
        laws.admitted(ticket(Priority.DEFAULT, 0.05))
    assert laws.mean_cost == pytest.approx(0.05, rel=0.01)
    assert laws.target(Priority.DEFAULT) == 1.0


def test_a_prompt_is_taken_off_the_backlog_once() -> None:
    """A stream that was not asked for speaks after its request counted as read."""
    engine = Engine(running=0)
    each = ticket(Priority.DEFAULT, 0.1)
    engine.laws.dispatched(each, engine.side, 0.0)
    assert engine.side.backlog.tokens == 640
    for _ in range(2):
        engine.laws.heard(each, engine.side)
    engine.laws.left(each, engine.side, served=True)
    assert engine.side.backlog.tokens == 0
    assert engine.side.backlog.before(Priority.SHEDDABLE) == 0


def test_of_a_running_request_only_the_rest_is_waited_for() -> None:
    engine = Engine(running=0)
    side = engine.side
    side.came_up(tiny_card(max_num_seqs=1, kv_blocks=100_000), 0.0)
    side.view.rates = RATES
    engine.laws.dispatched(ticket(Priority.DEFAULT, 0.5), side, 10.0)
    newcomer = ticket(Priority.DEFAULT, 0.5)
    for now, left in ((10.0, 0.5), (10.2, 0.3), (10.7, 0.0)):
        wait = engine.laws.wait(newcomer, now)
        assert wait is not None
        assert wait.slot == pytest.approx(left)


def test_what_its_caller_would_not_wait_for_is_missed() -> None:
    """A plain answer takes 1.6 s after its prompt, a stream's caller waits for its first token."""
    laws, each = Engine(running=0).laws, ticket(Priority.DEFAULT, 0.5)
    assert not laws.missed(each, 0.5)
    each.patience = 2.0
    assert not laws.missed(each, 0.3)
    assert laws.missed(each, 0.5)
    each.stream = True
    assert not laws.missed(each, 0.5)


def test_a_retry_waits_for_a_part_of_the_target_and_for_all_that_its_caller_has() -> None:
    laws = Engine(running=0).laws
    first, retry = ticket(Priority.DEFAULT, 0.5), ticket(Priority.DEFAULT, 0.5)
    retry.lane = Lane.RETRY
    assert laws.threshold(first, 0.0).seconds == pytest.approx(0.8), "the least queue: 4 of .2 s"
    assert laws.threshold(retry, 0.0).seconds == pytest.approx(0.4)
    for each in (first, retry):
        each.stream, each.patience = True, 0.3
    assert laws.threshold(first, 0.0) == laws.threshold(retry, 0.0)
    assert laws.threshold(retry, 0.0).seconds == pytest.approx(0.3)
