"""Three engines that step by themselves, in virtual time: who gets how much, who is left out."""

from collections import Counter
from statistics import mean

import pytest
from tests.admission.rig import Door
from tests.admission.virtual_engine import MODEL, Service, VirtualEngine
from tests.fakes import tiny_card

from surgetank.admission.routing.affinity import Prefix, preference, prefix_key
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.side import SideState
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.vocabulary import Outcome

CARD = tiny_card(max_num_seqs=16, kv_blocks=4096)
SLOWER = StepModel(3 * MODEL.t0, 3 * MODEL.a, 3 * MODEL.b, 3 * MODEL.c)
HOT = Prefix(prefix_key("You are a helpful clerk."), 400)
HOME, SECOND, _ = preference(HOT.key, ["0", "1", "2"])


@pytest.fixture
def three() -> Service:
    """Warm ones, all alike."""
    service = Service(card=CARD, engines=3)
    service.warm_up()
    service.flow(10.0, 40.0, service.send)
    return service


def went(doors: list[Door]) -> Counter[str]:
    """To which engines, at the last."""
    return Counter(door.call.ticket.engine for door in doors if door.call is not None)


def share(doors: list[Door], at: int) -> float:
    """Of those that went anywhere, how many went to that engine."""
    counts = went(doors)
    return counts[str(at)] / counts.total()


def test_equal_engines_get_equal_parts(three: Service) -> None:
    counts = went(three.flow(40.0, 10.0, three.send))
    assert sum(counts.values()) > 300
    assert min(counts.values()) > 0.28 * sum(counts.values())


def test_what_is_no_real_difference_takes_no_part_away() -> None:
    """Decoding costs these nothing, so that only an engine's own step tells them apart."""
    service = Service(card=CARD, engines=2)
    for engine, factor in zip(service.engines, (1.0, 1.05), strict=True):
        engine.model = StepModel(factor * MODEL.t0, MODEL.a, 0.0, 0.0)
    service.warm_up()
    service.flow(10.0, 20.0, service.send)
    assert 0.4 < share(service.flow(20.0, 10.0, service.send), 0) < 0.6


def test_a_slow_engine_gets_less() -> None:
    service = Service(card=CARD, engines=3)
    service.engines[2].model = SLOWER
    service.warm_up()
    service.flow(10.0, 40.0, service.send)
    doors = service.flow(60.0, 20.0, service.send)
    counts = went(doors)
    assert counts["2"] < 0.5 * min(counts["0"], counts["1"])
    assert counts["2"] > 0  # but it is of use


def test_an_engine_that_became_slow_gets_less_and_is_tried_again(three: Service) -> None:
    three.engines[0].slower = 4.0
    three.flow(40.0, 10.0, three.send)
    counts = went(three.flow(40.0, 10.0, three.send))
    assert counts["0"] < 0.6 * min(counts["1"], counts["2"])
    three.engines[0].slower = 1.0
    three.flow(40.0, 30.0, three.send)
    counts = went(three.flow(40.0, 10.0, three.send))
    assert counts["0"] > 0.28 * sum(counts.values())


def test_a_stalled_engine_is_left_out(three: Service) -> None:
    three.engines[1].frozen_until = three.clock.monotonic() + 10.0
    three.flow(20.0, 1.5, three.send)
    doors = three.flow(20.0, 5.0, three.send)
    assert went(doors)["1"] == 0
    assert all(door.outcome is None or door.outcome is Outcome.OK for door in doors)
    three.timer.advance(10.0)
    assert went(three.flow(20.0, 5.0, three.send))["1"] > 0


def test_a_dead_engines_requests_are_served_by_the_others(three: Service) -> None:
    doors = [three.send(prompt=200, max_tokens=4) for _ in range(6)]
    tickets = [door.call.ticket for door in doors if door.call is not None]
    on_the_dead = [ticket for ticket in tickets if ticket.engine == "0"]
    assert on_the_dead
    three.engines[0].die()
    three.timer.advance(5.0)
    assert {door.outcome for door in doors} == {Outcome.OK}
    taught = [ticket for ticket in tickets if ticket.forecast is not None]
    assert not set(taught) & set(on_the_dead)  # their waits say nothing of what was predicted
    assert taught
    assert three.desk.snapshot().engines[0].state is SideState.DOWN


def test_all_together_are_predicted(three: Service) -> None:
    """Waits of an overload, against what was told at admission."""
    doors = three.flow(220.0, 6.0, lambda: three.send(max_tokens=40))
    three.timer.advance(20.0)
    pairs = [
        (ticket.wait.queueing, ticket.first_token_at - ticket.arrived)
        for door in doors
        if door.call is not None
        and (ticket := door.call.ticket).wait is not None
        and ticket.first_token_at is not None
        and ticket.wait.queueing > 0.1
    ]
    assert len(pairs) > 100
    told, took = mean(pair[0] for pair in pairs), mean(pair[1] for pair in pairs)
    assert 0.5 < told / took < 2.0
    assert any(door.outcome is Outcome.OVERLOAD for door in doors)


def test_a_prefix_stays_at_its_home_until_that_is_overloaded(three: Service) -> None:
    def hot() -> Door:
        return three.send(prompt=450, max_tokens=4, same=True, prefix=HOT)

    assert share(three.flow(1.0, 40.0, hot), HOME) > 0.9
    assert share(three.flow(60.0, 10.0, hot), HOME) < 0.5  # more than one engine can read
    three.timer.advance(10.0)
    assert share(three.flow(1.0, 40.0, hot), HOME) > 0.9


def test_when_its_home_is_gone_a_prefix_has_a_second_one(three: Service) -> None:
    three.engines[HOME].die()
    doors = three.flow(1.0, 40.0, lambda: three.send(prompt=450, max_tokens=4, prefix=HOT))
    assert share(doors, SECOND) > 0.9


def test_affinity_can_be_off() -> None:
    service = Service(card=CARD, engines=3, routing=RoutingConfig(affinity_gain=0.0))
    service.warm_up()
    doors = service.flow(20.0, 8.0, lambda: service.send(prompt=100, prefix=HOT))
    assert len(went(doors)) == 3


def test_a_new_engine_is_warmed_slowly(three: Service) -> None:
    three.engines[2].die()
    three.flow(40.0, 5.0, three.send)
    three.engines[2].come_up(CARD)
    first = went(three.flow(80.0, 3.0, three.send))["2"]
    three.flow(80.0, 30.0, three.send)
    later = went(three.flow(80.0, 3.0, three.send))["2"]
    assert 0 < first < 0.7 * later


def test_one_engine_among_several_is_like_the_only_one() -> None:
    """With the others down, what one is told and gets is what it is told and gets alone."""

    def told(engines: int) -> list[float | None]:
        service = Service(card=CARD, engines=engines)
        for other in service.engines[1:]:
            other.die()
        service.warm_up()
        doors = service.flow(60.0, 5.0, lambda: service.send(prompt=120))
        waits = [door.call.ticket.wait for door in doors if door.call is not None]
        return [None if wait is None else wait.seconds for wait in waits]

    alone, among = told(1), told(3)
    assert len(alone) > 50
    assert among == pytest.approx(alone, rel=0.01)


def test_an_engine_is_what_it_says(three: Service) -> None:
    assert isinstance(three.engine, VirtualEngine)
    looks = three.desk.snapshot().engines
    assert [look.name for look in looks] == ["0", "1", "2"]
    for look in looks:
        assert look.state is SideState.UP
        assert look.wait is not None
        assert 0.008 < look.wait < 0.05
        assert look.model is not None
        assert look.model.a == pytest.approx(MODEL.a, rel=0.2)
