"""A request that must wait for one engine keeps nobody from another, and is overtaken at none."""

import pytest
from tests.admission.rig import Rig
from tests.fakes import tiny_card

from surgetank.admission import refusals
from surgetank.admission.gate import GateConfig
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Priority

LARGE = 3000  # tokens of a prompt that only the second engine can read


def held(rig: Rig) -> list[int]:
    return [each.dispatched_seqs for each in rig.desk.snapshot().engines]


@pytest.fixture(params=[Priority.DEFAULT, Priority.CRITICAL])
def rig(request: pytest.FixtureRequest) -> Rig:
    """A small engine that runs two, and a large one that runs one: a large prompt, while another
    of the class of `params` waits for it."""
    made = Rig(GateConfig(in_flight_seqs=2), engines=2)
    made.backends[1].die()
    made.backends[1].come_up(tiny_card(context_length=4096, kv_blocks=1024))
    made.timer.advance(30.0)  # of slow start
    made.desk.engines.hold("1", 1.0)
    made.send(prompt=LARGE)
    made.send(prompt=LARGE, priority=request.param)
    assert (held(made), made.queued) == ([0, 1], 1)
    return made


def test_others_go_where_the_head_of_the_queue_cannot(rig: Rig) -> None:
    others = [rig.send() for _ in range(3)]
    assert (held(rig), rig.queued) == ([2, 1], 2)
    rig.backends[0].finish(min(rig.backends[0].open))
    assert (held(rig), rig.queued) == ([2, 1], 1)
    assert [door.outcome for door in others] == [Outcome.OK, None, None]


def test_the_head_is_the_first_at_its_own_engine(rig: Rig) -> None:
    for _ in range(3):
        rig.send()
    (running,) = rig.backends[1].open
    rig.backends[1].finish(running)
    ((request, _),) = rig.backends[1].open.values()
    assert len(request.prompt) == LARGE


def test_nobody_is_overtaken_at_an_engine_that_it_waits_for(rig: Rig) -> None:
    rig.send()
    wide = rig.send(n=2)
    rig.send()
    assert (held(rig), rig.queued) == ([1, 1], 4)  # the free slot is kept for the wide one
    rig.backends[0].finish(min(rig.backends[0].open))
    assert (held(rig), rig.queued) == ([2, 1], 2)
    assert wide.call is not None
    assert wide.call.ticket.engine == "0"


def test_those_whose_time_is_over_are_not_sent(rig: Rig) -> None:
    full = [rig.send() for _ in range(2)]
    late = rig.send(headers=[("x-stainless-read-timeout", "5")])
    rig.clock.advance(6.0)  # the timer comes too late
    rig.backends[0].finish(min(rig.backends[0].open))
    assert [door.outcome for door in full] == [Outcome.OK, None]
    assert late.outcome is Outcome.EXPIRED
    assert len(rig.backends[0].started) == 2


@pytest.mark.parametrize("why", [refusals.backend_down("hung up"), refusals.pushback(503)])
def test_what_was_turned_away_leaves_that_engine_to_others(why: Refusal) -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    first, second = rig.send(), rig.send()
    assert first.call is not None
    rig.desk.turned_away(first.call, why)
    assert (held(rig), rig.queued) == ([0, 1], 1)
    rig.clock.advance(0.05)  # in which an engine that is full is left alone
    third = rig.send()
    assert (held(rig), rig.queued) == ([1, 1], 1)
    rig.backends[1].finish(min(rig.backends[1].open))
    assert second.outcome is Outcome.OK
    assert first.call.ticket.engine == "1"
    assert third.call is not None
    assert third.call.ticket.engine == "0"


def test_the_queue_does_not_go_by_way_of_an_engine_that_is_full() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1), engines=2)
    first = rig.send()
    rig.send()
    assert first.call is not None
    rig.desk.turned_away(first.call, refusals.pushback(429))
    for _ in range(3):
        rig.send()
    assert (held(rig), rig.queued) == ([0, 1], 4)
    assert len(rig.backends[0].started) == 1
