"""Guards: an act that would make worse what is going on is refused; at peace nothing is."""

from dataclasses import replace

import pytest
from tests.control.diagnose.callers import Caller
from tests.control.diagnose.watched import Watched
from tests.fakes import tiny_card

from surgetank.admission.limits import Limit
from surgetank.control.diagnose.facts import Facts
from surgetank.control.guards import objection


def against(service: Watched, limit: Limit, value: float) -> str | None:
    before = service.desk.limits.get(limit)
    return objection(limit, before, value, Facts.of(service.history.looks()))


def test_at_peace_nothing_is_objected_to() -> None:
    service = Watched()
    service.warm_up()
    for view in service.desk.limits.snapshot():
        for value in (view.minimum, view.maximum):
            assert against(service, view.name, value) is None, view.name


def test_a_storm_is_not_fed() -> None:
    service = Watched()
    service.warm_up()
    service.flow(30.0, 15.0, lambda: Caller(service, patience=0.3, tries=4).door)
    assert "feed the storm" in (against(service, Limit.RETRY_SHARE, 0.5) or "")
    assert against(service, Limit.RETRY_SHARE, 0.02) is None


@pytest.mark.parametrize("limit", [Limit.KV_RESERVE, Limit.IN_FLIGHT_SEQS])
def test_a_full_kv_pool_is_not_promised_further(limit: Limit) -> None:
    service = Watched(card=tiny_card(max_num_seqs=16, kv_blocks=40))
    service.warm_up()
    service.flow(20.0, 12.0, lambda: service.send(prompt=160, max_tokens=100))
    service.desk.limits.set_base(limit, 0.9 if limit is Limit.KV_RESERVE else 8, "config")
    assert "would mean preemption" in (
        against(service, limit, 1.0 if limit is Limit.KV_RESERVE else 16) or ""
    )
    assert against(service, Limit.MAX_OUTPUT_TOKENS, 16) is None


def test_a_late_queue_is_not_lengthened() -> None:
    service = Watched()
    service.warm_up()
    service.flow(80.0, 12.0, service.send)
    until = service.clock.monotonic() + 60.0
    service.desk.limits.override(Limit.KAPPA, 2.0, until=until, who="ada", why="drill")
    service.flow(80.0, 10.0, service.send)
    service.desk.limits.clear(Limit.KAPPA)
    assert "more come late" in (against(service, Limit.QUEUE_REQUESTS, 10_000) or "")
    assert against(service, Limit.QUEUE_REQUESTS, 16) is None


def test_shedding_does_not_open_what_is_closed_further() -> None:
    service = Watched()
    service.warm_up()
    until = service.clock.monotonic() + 60.0
    service.desk.limits.override(Limit.LOWEST_CLASS, 0, until=until, who="ada", why="drill")
    service.flow(40.0, 10.0, service.send)
    assert "would let in more" in (against(service, Limit.LOWEST_CLASS, 1) or "")


def test_what_our_own_limit_keeps_out_is_not_narrowed_further() -> None:
    service = Watched()
    service.warm_up()
    until = service.clock.monotonic() + 60.0
    service.desk.limits.override(Limit.IN_FLIGHT_SEQS, 2, until=until, who="ada", why="drill")
    service.flow(25.0, 10.0, service.send)
    assert "already keeps work out" in (against(service, Limit.IN_FLIGHT_SEQS, 1) or "")
    assert against(service, Limit.IN_FLIGHT_SEQS, 8) is None


def test_fewer_at_once_are_fine_while_tokens_are_computed_again_and_again() -> None:
    service = Watched()
    service.warm_up()
    until = service.clock.monotonic() + 60.0
    service.desk.limits.override(Limit.IN_FLIGHT_SEQS, 2, until=until, who="ada", why="drill")
    service.flow(25.0, 10.0, service.send)
    facts = Facts.of(service.history.looks())
    thrash = replace(facts, flow=replace(facts.flow, preempted=facts.flow.computed))
    assert objection(Limit.IN_FLIGHT_SEQS, 2, 1, facts) is not None
    assert objection(Limit.IN_FLIGHT_SEQS, 2, 1, thrash) is None
