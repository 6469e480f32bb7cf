"""The control loop: policies set bases, overrides win and expire, the engine follows."""

import asyncio
import logging
from collections.abc import Mapping

import pytest
from tests.control.service import PlayedService
from tests.fakes import tiny_card

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.policies.policy import stateless
from surgetank.control.policies.static import configured
from surgetank.engine.api import Settings

QUEUE = Limit.QUEUE_REQUESTS


def test_static_is_the_configuration_and_changes_nothing() -> None:
    service = PlayedService(GateConfig(queue_requests=7))
    before = service.limits.snapshot()
    service.pass_time(0.25)
    assert service.limits.snapshot() == before
    assert service.limits.get(QUEUE) == 7
    snapshot = service.rig.desk.snapshot()
    assert configured(GateConfig(queue_wait=2.5), snapshot)[Limit.QUEUE_WAIT] == 2.5


def test_a_policy_sets_base_values_and_the_journal_says_which() -> None:
    wanted = {QUEUE: 40.0}
    service = PlayedService(policies={"probe": stateless(lambda config, snapshot: wanted)})
    service.pass_time(0.25)
    service.pass_time(0.25)
    wanted[QUEUE] = 50.0
    service.pass_time(0.25)
    entries = [entry for entry in service.journal.recent() if entry.what == QUEUE]
    assert [(entry.before, entry.after, entry.why, entry.cause) for entry in entries] == [
        (256, 40, "policy:probe", "policy"),
        (40, 50, "policy:probe", "policy"),
    ]


def test_a_policy_cannot_ask_for_more_than_the_engine_has() -> None:
    many = {Limit.IN_FLIGHT_SEQS: 100.0}
    service = PlayedService(policies={"greedy": stateless(lambda config, snapshot: many)})
    service.pass_time(0.25)
    service.pass_time(0.25)
    assert service.limits.get(Limit.IN_FLIGHT_SEQS) == 8
    assert service.policy_errors.value == 0


def test_a_policy_that_raises_keeps_the_last_limits(caplog: pytest.LogCaptureFixture) -> None:
    def fragile(config: GateConfig, snapshot: DeskSnapshot) -> Mapping[Limit, float]:
        if snapshot.draining:
            raise ZeroDivisionError("no traffic")
        return {QUEUE: 40.0}

    later = {Limit.MAX_N: 4.0}
    service = PlayedService(
        policies={"fragile": stateless(fragile), "later": stateless(lambda *_: later)}
    )
    service.pass_time(0.25)
    service.rig.desk.draining = True
    later[Limit.MAX_N] = 3.0
    with caplog.at_level(logging.ERROR):
        service.pass_time(0.25)
    assert service.policy_errors.value == 1
    assert "policy fragile failed" in caplog.text
    assert service.limits.get(QUEUE) == 40
    assert service.limits.get(Limit.MAX_N) == 3, "the other policies still run"


def test_policies_that_were_added_leave_no_trace_in_whatever_order_they_go() -> None:
    service = PlayedService()
    before = service.limits.get(Limit.MAX_NUM_SEQS)
    for name, value in (("first", 3.0), ("second", 2.0)):
        wanted = {Limit.MAX_NUM_SEQS: value}
        service.loop.add(name, stateless(lambda *_, wanted=wanted: wanted))
        service.pass_time(0.25)
        assert service.limits.get(Limit.MAX_NUM_SEQS) == value
    service.loop.remove("first")
    service.pass_time(0.25)
    assert service.limits.get(Limit.MAX_NUM_SEQS) == 2
    service.loop.remove("second")
    assert service.limits.get(Limit.MAX_NUM_SEQS) == before


def test_an_override_outlives_policies_and_expires_into_the_journal() -> None:
    service = PlayedService()
    service.actions.set_limit(QUEUE, 9, ttl=1.0, who="ada", why="burst")
    service.pass_time(0.5)
    assert service.limits.get(QUEUE) == 9
    service.pass_time(0.6)
    assert service.limits.get(QUEUE) == 256
    made, expired = (entry for entry in service.journal.recent() if entry.what == QUEUE)
    assert (made.before, made.after, made.ttl, made.cause) == (256, 9, 1.0, "operator")
    assert (expired.who, expired.why) == ("ada", "expired: burst")
    assert (expired.before, expired.after, expired.cause) == (9, 256, "expiry")


def test_an_override_that_was_ended_or_replaced_does_not_expire() -> None:
    service = PlayedService()
    service.actions.set_limit(QUEUE, 9, ttl=1.0, who="ada", why="burst")
    service.pass_time(0.25)
    service.actions.set_limit(QUEUE, 8, ttl=5.0, who="bob", why="more")
    service.pass_time(2.0)
    service.actions.clear_limit(QUEUE, who="bob", why="over")
    service.pass_time(9.0)
    causes = [entry.cause for entry in service.journal.recent() if entry.what == QUEUE]
    assert causes == ["operator"] * 3


def told(*, max_num_seqs: int = 8, tpot_target: float = 0.0) -> Settings:
    return Settings(
        max_num_seqs=max_num_seqs,
        max_batch_tokens=256,
        prefill_share=1.0,
        kv_watermark=1.0,
        tpot_target=tpot_target,
    )


def test_the_engine_keeps_its_own_targets_until_an_operator_changes_one() -> None:
    service = PlayedService()
    service.rig.backend.die()
    service.rig.backend.come_up(tiny_card(max_num_seqs=8, tpot_target=0.1))
    service.pass_time(0.25)
    assert service.told[-1] == told(tpot_target=0.1)
    service.actions.set_limit("tpot_target", 0.2, ttl=1.0, who="ada", why="longer steps")
    service.pass_time(0.25)
    service.pass_time(1.0)
    assert service.told[-2:] == [told(tpot_target=0.2), told(tpot_target=0.1)]


def test_the_engine_is_told_of_its_budgets_once_and_again_when_they_change() -> None:
    service = PlayedService()
    service.pass_time(0.25)
    service.pass_time(0.25)
    assert service.told == [told(max_num_seqs=8)]
    service.actions.set_limit("max_num_seqs", 2, ttl=1.0, who="ada", why="less")
    service.pass_time(0.25)
    service.pass_time(1.0)
    assert service.told[1:] == [
        told(max_num_seqs=2),
        told(max_num_seqs=8),
    ]


def test_an_engine_that_comes_back_larger_is_told_its_new_budgets() -> None:
    service = PlayedService()
    service.pass_time(0.25)
    service.rig.backend.die()
    service.pass_time(0.25)
    assert len(service.told) == 1, "nobody is there to be told"
    service.rig.backend.come_up(tiny_card(max_num_seqs=16))
    service.pass_time(0.25)
    assert service.told[-1].max_num_seqs == 16


def test_an_operators_drain_ends_by_itself() -> None:
    service = PlayedService()
    service.actions.drain(who="ada", why="deploy", ttl=10.0)
    service.pass_time(9.0)
    assert service.turns == [True]
    service.pass_time(1.0)
    assert service.turns == [True, False]
    entries = [entry for entry in service.journal.recent() if entry.what == "draining"]
    assert [(entry.before, entry.after, entry.cause) for entry in entries] == [
        (False, True, "operator"),
        (True, False, "expiry"),
    ]


async def test_a_pass_that_fails_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = PlayedService()
    went_on = asyncio.Event()

    def tick() -> None:
        if service.policy_errors.value < 2:
            raise ZeroDivisionError("no traffic")
        went_on.set()

    monkeypatch.setattr(service.loop, "tick", tick)
    running = asyncio.create_task(service.loop.run(0.0))
    async with asyncio.timeout(10):
        await went_on.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert service.policy_errors.value == 2
    assert "a pass of the control loop failed" in caplog.text
