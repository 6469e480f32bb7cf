"""diagnose: each cause, injected in virtual time, gets its verdict and no other; ramps get none."""

import shlex
from collections import Counter
from dataclasses import replace

import click
import pytest
from tests.admission.rig import Door
from tests.control.diagnose.callers import Caller
from tests.control.diagnose.watched import Watched
from tests.fakes import tiny_card

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.control.cli import main
from surgetank.control.diagnose.verdict import Diagnosis, Slo, Verdict, diagnose
from surgetank.engine.api import ModelCard

SETTLING = 6.0  # seconds that a verdict may take to come


def warm(config: GateConfig | None = None, card: ModelCard | None = None) -> Watched:
    service = Watched(config, card)
    service.warm_up()
    return service


def narrow(service: Watched, limit: Limit, value: float) -> None:
    until = service.clock.monotonic() + 600.0
    service.desk.limits.override(limit, value, until=until, who="ada", why="drill")


def only(service: Watched, since: float, verdict: Verdict) -> Diagnosis:
    """Nothing but healthy before it was injected, and nothing but that verdict once settled."""
    assert {seen for at, seen in service.verdicts if at < since} == {Verdict.HEALTHY}
    assert service.since(since) <= {verdict, Verdict.HEALTHY}
    assert service.since(since + SETTLING) == {verdict}
    diagnosis = service.diagnose()
    assert diagnosis.verdict is verdict
    exists(diagnosis.next)
    return diagnosis


def exists(command: str) -> None:
    """The next command can be run as it is written."""
    group: click.Command = main
    _, *words = shlex.split(command)
    while isinstance(group, click.Group):
        found = group.get_command(click.Context(group), words.pop(0))
        assert found is not None, command
        group = found
    group.make_context(None, words)


def test_healthy_from_the_first_request_on_and_while_idle() -> None:
    service = warm()
    service.flow(20.0, 20.0, service.send)
    service.timer.advance(30.0)
    assert service.since(0.0) == {Verdict.HEALTHY}
    assert service.diagnose().next == "surgetank top"


@pytest.mark.parametrize("target", [20.0, 30.0, 34.0])
def test_a_ramp_up_to_the_capacity_is_no_trouble(target: float) -> None:
    service = warm()
    for step in range(1, 21):
        service.flow(target * step / 20.0, 1.5, service.send)
    assert service.since(0.0) == {Verdict.HEALTHY}


def test_a_jump_within_the_capacity_is_no_trouble() -> None:
    service = warm()
    service.flow(3.0, 10.0, service.send)
    service.flow(28.0, 20.0, service.send)
    assert service.since(0.0) == {Verdict.HEALTHY}


@pytest.mark.parametrize("rate", [60.0, 160.0])
def test_more_work_than_device_is_compute(rate: float) -> None:
    service = warm()
    began = service.clock.monotonic()
    service.flow(rate, 15.0, service.send)
    diagnosis = only(service, began, Verdict.COMPUTE)
    assert diagnosis.evidence[0].startswith("the engine was full")


def test_a_device_that_became_slower_is_compute_and_says_so() -> None:
    service = warm()
    service.flow(20.0, 5.0, service.send)
    began = service.clock.monotonic()
    service.engine.slower = 4.0
    service.flow(20.0, 15.0, service.send)
    diagnosis = only(service, began, Verdict.COMPUTE)
    assert any("times what they took" in line for line in diagnosis.evidence)


def test_a_small_kv_pool_is_memory() -> None:
    service = warm(card=tiny_card(max_num_seqs=16, kv_blocks=40))
    began = service.clock.monotonic()
    service.flow(20.0, 15.0, lambda: service.send(prompt=160, max_tokens=100))
    diagnosis = only(service, began, Verdict.MEMORY)
    assert "of 40 blocks are promised or used, 92% may be" in diagnosis.evidence[0]


def test_long_answers_that_the_pool_cannot_hold_are_memory_though_short_ones_fit() -> None:
    service = warm(card=tiny_card(max_num_seqs=16, kv_blocks=128))
    began = service.clock.monotonic()

    def long_and_short() -> Door:
        service.send()
        return service.send(prompt=50, max_tokens=600)

    service.flow(8.0, 20.0, long_and_short)
    assert service.since(began + SETTLING) == {Verdict.MEMORY}


def test_steps_that_end_early_are_scheduling() -> None:
    card = tiny_card(max_num_seqs=16, kv_blocks=4096, max_batch_tokens=20)
    service = warm(card=card)
    began = service.clock.monotonic()
    service.flow(25.0, 15.0, lambda: service.send(prompt=100, max_tokens=5))
    diagnosis = only(service, began, Verdict.SCHEDULING)
    assert "a step of at most 20 tokens" in diagnosis.evidence[0]


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        (Limit.IN_FLIGHT_SEQS, 1.0),
        (Limit.MAX_NUM_SEQS, 1.0),
        (Limit.LOWEST_CLASS, 0.0),
        (Limit.KV_RESERVE, 0.05),
    ],
)
def test_a_limit_of_ours_under_light_load_is_limit_and_names_who(
    limit: Limit, value: float
) -> None:
    service = warm(card=tiny_card(max_num_seqs=16, kv_blocks=100))
    service.flow(6.0, 5.0, service.send)
    began = service.clock.monotonic()
    narrow(service, limit, value)
    service.flow(6.0, 15.0, service.send)
    assert service.since(began) <= {Verdict.LIMIT, Verdict.HEALTHY}
    diagnosis = service.diagnose()
    assert diagnosis.verdict is Verdict.LIMIT
    assert f"limit {limit} is {value:g}" in diagnosis.evidence[0]
    assert "set by ada (drill)" in diagnosis.evidence[0]
    assert diagnosis.next.startswith(f"surgetank limits clear {limit} ")
    exists(diagnosis.next)


def test_a_configured_limit_in_front_of_room_is_limit() -> None:
    service = warm(GateConfig(in_flight_seqs=2, laws={"least_batch": 1}))
    began = service.clock.monotonic()
    service.flow(25.0, 15.0, service.send)
    diagnosis = only(service, began, Verdict.LIMIT)
    assert "limit in_flight_seqs is 2 sequences; it may be 1 to 16" in diagnosis.evidence[0]
    assert diagnosis.next.startswith("surgetank limits set in_flight_seqs 4 --ttl 10m")


def test_a_limit_that_was_given_back_is_not_named_any_more() -> None:
    service = warm()
    narrow(service, Limit.IN_FLIGHT_SEQS, 1.0)
    service.flow(6.0, 15.0, service.send)
    assert service.diagnose().verdict is Verdict.LIMIT
    service.desk.limits.clear(Limit.IN_FLIGHT_SEQS)
    cleared = service.clock.monotonic()
    service.flow(6.0, 15.0, service.send)
    assert service.since(cleared + 0.5) == {Verdict.HEALTHY}


def test_a_drain_is_limit() -> None:
    service = warm()
    service.desk.drain()
    diagnosis = service.diagnose()
    assert diagnosis.verdict is Verdict.LIMIT
    exists(diagnosis.next)


def test_a_standing_engine_is_backend_within_two_seconds_and_until_it_is_over() -> None:
    service = warm()
    service.flow(10.0, 10.0, service.send)
    froze = service.clock.monotonic()
    service.engine.frozen_until = froze + 12.0
    service.flow(10.0, 12.0, service.send)
    assert service.since(froze + 2.5) == {Verdict.BACKEND}
    assert service.diagnose().next == "surgetank stacks"
    thawed = service.clock.monotonic()
    service.flow(10.0, 25.0, service.send)
    assert service.since(froze) <= {Verdict.BACKEND, Verdict.HEALTHY}, "no other word on the way"
    assert service.since(thawed + 15.0) == {Verdict.HEALTHY}


def test_no_engine_is_backend_at_once() -> None:
    service = warm()
    service.engine.card = None
    service.desk.engines.watchers[0].on_down("gone")
    assert service.diagnose().verdict is Verdict.BACKEND
    assert service.diagnose(Slo.TPOT).verdict is Verdict.BACKEND


@pytest.mark.parametrize("rate", [30.0, 60.0])
def test_clients_that_retry_at_once_are_clients(rate: float) -> None:
    service = warm()
    began = service.clock.monotonic()
    service.flow(rate, 15.0, lambda: Caller(service, patience=0.3, tries=4).door)
    diagnosis = only(service, began, Verdict.CLIENTS)
    assert "arrivals per first attempt" in diagnosis.evidence[0]


def test_a_storm_that_is_over_is_not_named_any_more() -> None:
    service = warm()
    service.flow(30.0, 15.0, lambda: Caller(service, patience=0.3, tries=4).door)
    assert service.diagnose().verdict is Verdict.CLIENTS
    over = service.clock.monotonic()
    service.flow(10.0, 15.0, service.send)
    assert service.since(over + 12.0) == {Verdict.HEALTHY}


def test_clients_that_wait_as_told_are_not_the_cause_of_an_overload() -> None:
    service = warm()
    began = service.clock.monotonic()
    service.flow(80.0, 15.0, lambda: Caller(service, patience=30.0, tries=4, obeys=True).door)
    only(service, began, Verdict.COMPUTE)


@pytest.mark.parametrize(
    ("advice", "verdict"), [("obeyed", Verdict.COMPUTE), ("ignored", Verdict.CLIENTS)]
)
def test_in_a_real_overload_only_retries_out_of_turn_are_a_storm(
    advice: str, verdict: Verdict
) -> None:
    service = warm()
    service.flow(80.0, 15.0, service.send)
    *earlier, last = service.history.looks()
    flow = replace(last.desk.flow, retries=3 * last.desk.flow.first)
    counts = replace(last.counts, returned=Counter({advice: flow.retries}))
    looks = (*earlier, replace(last, desk=replace(last.desk, flow=flow), counts=counts))
    assert diagnose(looks).verdict is verdict


def test_a_stall_is_backend_though_its_clients_storm() -> None:
    service = warm()
    froze = service.clock.monotonic()
    service.engine.frozen_until = froze + 15.0
    service.flow(20.0, 15.0, lambda: Caller(service, patience=0.3, tries=4).door)
    assert service.since(froze + 3.0) == {Verdict.BACKEND}


def test_one_promise_alone_is_healthy_while_it_is_kept() -> None:
    service = warm()
    service.flow(80.0, 15.0, service.send)
    assert service.diagnose(Slo.TTFT).verdict is Verdict.COMPUTE
    assert service.diagnose(Slo.TPOT).verdict is Verdict.HEALTHY
    assert service.diagnose(Slo.AVAILABILITY).verdict is Verdict.HEALTHY
