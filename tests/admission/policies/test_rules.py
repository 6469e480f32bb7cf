"""Rules at the gate: the lab's rivals decide on real tickets, and say what they met."""

import random
from typing import Any

import pytest
from tests.admission.rig import Rig, refused

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.policies.envoy import Envoy
from surgetank.admission.policies.gradient2 import Gradient2
from surgetank.admission.policies.kv_threshold import KvThreshold
from surgetank.admission.policies.part import Part
from surgetank.admission.policies.plugins import PolicyError
from surgetank.admission.policies.queue_cap import QueueCap
from surgetank.admission.policies.rule import Rule, Ruled, Seen
from surgetank.admission.policies.screen import Screened
from surgetank.admission.policies.table import PLUGINS
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason


def test_in_flight_counts_the_queue_and_the_engine() -> None:
    rig = Rig(GateConfig(policy="static-in-flight"))  # twice the 8 slots
    doors = [rig.send(prompt=4 + number) for number in range(17)]
    assert [door.refusal for door in doors[:16]] == [None] * 16
    refusal = refused(doors[16])
    assert (refusal.outcome, refusal.reason) == (Outcome.OVERLOAD, Reason.IN_FLIGHT)
    assert (refusal.measured, refusal.limit, refusal.limit_name) == (17, 16, "in_flight")
    assert refusal.retry_after is not None
    rig.backend.finish(1)
    assert rig.send(prompt=40).refusal is None


def test_a_queue_cap_names_the_cap_that_it_meets() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1))
    site = rig.desk.policies.site
    capped = Ruled(site, QueueCap(requests=1, tokens=50))
    rig.desk.policies.live = Part("capped", capped, rig.desk.limits)
    rig.desk.policies.changed()
    rig.send(prompt=4)
    assert refused(rig.send(prompt=51)).limit_name == "queue_cap_tokens"
    rig.send(prompt=5)
    refusal = refused(rig.send(prompt=6))
    assert (refusal.limit_name, refusal.measured) == ("queue_cap", 2)


@pytest.mark.parametrize("name", [*PLUGINS])
def test_screen_and_bounds_hold_under_every_policy(name: str) -> None:
    rig = Rig(GateConfig(policy=name, queue_requests=4, in_flight_seqs=1))
    doors = [rig.send(prompt=4 + number) for number in range(6)]
    reasons = [door.refusal.reason for door in doors if door.refusal]
    assert reasons
    assert rig.queued <= 4
    rig.desk.limits.override(Limit.LOWEST_CLASS, 0, until=1e9, who="ada", why="shed")
    shed = refused(rig.send(prompt=50, priority=Priority.BATCH))
    assert shed.reason is Reason.BROWN_OUT
    while rig.backend.open:
        rig.backend.finish(min(rig.backend.open))
    rig.check_conservation()


class Mute:
    """Forgets to answer."""

    def decide(self, *_: object) -> None:
        """Nothing."""


def test_an_answer_that_is_none_is_an_error() -> None:
    rig = Rig()

    site = rig.desk.policies.site
    policy: Any = Mute()
    screened = Screened(site, policy)
    ticket = rig.arrive()
    card = rig.backend.card
    assert card is not None
    with pytest.raises(TypeError, match=r"decide\(\) returned None; allowed: Admission, Refusal"):
        screened.decide(ticket, card, 0.0, 0.0)


def test_what_rules_met() -> None:
    seen = Seen(in_flight=5, kv_usage=0.95)
    rules: list[Rule] = [KvThreshold(0.9), Gradient2(), Envoy(random.Random(1))]
    met = [rule.met(7, seen) for rule in rules]
    assert [(each.measured, each.limit) for each in met] == [(0.95, 0.9), (6, 20), (6, 3)]


def test_a_policy_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="no policy 'lucky'; there are: laws, none, static-in"):
        GateConfig(policy="lucky")
    config = GateConfig().model_copy(update={"policy": "lucky"})
    with pytest.raises(PolicyError, match="no policy 'lucky'"):
        Rig(config)
