"""What a request costs: the price of the engine that it goes to, charged to its tenant once."""

from dataclasses import dataclass, field

import pytest
from tests.admission.routing.test_sides import knows, rates, sides

from surgetank.admission.cost import engine_seconds
from surgetank.admission.laws import Laws
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limits
from surgetank.admission.pace import Pace
from surgetank.admission.queue import Queue
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import Ticket
from surgetank.admission.wait import reading
from surgetank.telemetry.slo import SloTargets

OUTPUT = 8


def price(factor: float, output: float = OUTPUT) -> float:
    """Of 100 prompt tokens at an engine whose steps take `factor` times as long."""
    return engine_seconds(rates(factor).model, 8.0, 100.0, output, 1)


def pair() -> Sides:
    """The second is three times slower."""
    made = sides(2)
    knows(made, rates(1.0), rates(3.0))
    made.look(0.0)
    return made


@dataclass
class Till:
    """The laws before them, and one ticket that waits."""

    sides: Sides = field(default_factory=pair)
    queue: Queue = field(default_factory=Queue)

    def __post_init__(self) -> None:
        self.laws = Laws(
            config=LawsConfig(),
            targets=SloTargets(),
            limits=Limits(),
            queue=self.queue,
            sides=self.sides,
            pace=Pace(0.0),
        )
        self.ticket = Ticket(id="", arrived=0.0, door="http", tenant="a")
        self.ticket.prompt_tokens, self.ticket.max_tokens = 100, OUTPUT
        self.ticket.estimate = self.laws.estimate(self.ticket, exact=True)

    def send(self, at: int) -> None:
        """To that engine."""
        self.queue.add(self.ticket, 0.0)
        self.queue.remove(self.ticket)
        self.permit = self.laws.dispatched(self.ticket, self.sides.all[at], 0.0)

    @property
    def charged(self) -> float:
        """Engine-seconds of the ticket's tenant."""
        return self.queue._classes[self.ticket.priority].order._counters.get("a", 0.0)


@pytest.mark.parametrize(("at", "factor"), [(0, 1.0), (1, 3.0)])
def test_it_is_the_price_of_its_engine(at: int, factor: float) -> None:
    till = Till()
    assert price(1.0) < till.ticket.estimate.seconds < price(3.0)  # of both, while it waits
    till.send(at)
    assert till.ticket.estimate.seconds == pytest.approx(price(factor))
    assert till.permit.seconds == pytest.approx(price(factor))
    assert till.charged == pytest.approx(price(factor))


def test_an_early_end_is_refunded_at_that_price() -> None:
    till = Till()
    till.send(1)
    till.ticket.output_tokens = 2
    till.laws.left(till.ticket, till.sides.all[1], served=True)
    assert till.charged == pytest.approx(price(3.0, output=2))


def test_what_moves_is_charged_once() -> None:
    till = Till()
    before = till.ticket.estimate
    till.send(1)
    till.laws.moved(till.ticket, till.sides.all[1])
    assert till.charged == pytest.approx(0.0)
    assert till.ticket.estimate == before
    till.send(0)
    assert till.charged == pytest.approx(price(1.0))
    assert [side.backlog.tokens for side in till.sides.all] == [100, 0]


def test_stalls_count_from_then_on_at_its_engine() -> None:
    till = Till()
    till.ticket.forecast = (1.0, 0.0)
    till.sides.all[1].view.stalled = 7.0
    till.send(1)
    assert till.ticket.forecast == (1.0, 7.0)


def test_what_waits_is_read_by_both() -> None:
    till = Till()
    till.queue.add(till.ticket, 0.0)
    wait = till.laws.wait(till.laws.average(0.0), 0.0)
    fast, slow = (reading(rates(factor), 1.0) for factor in (1.0, 3.0))
    assert wait is not None
    assert wait.prefill == pytest.approx(100 / (1 / fast + 1 / slow))
