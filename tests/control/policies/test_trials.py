"""A policy's life on the played service: tried, compared, taken back by itself, or made live."""

from typing import Any

import pytest
from tests.control.policies.crowd import Crowd

from surgetank.admission.limits import Limit
from surgetank.admission.policies.judged import Judged
from surgetank.admission.policies.plugins import PolicyError
from surgetank.control.actions import UnknownName, WouldWorsen

WHO: dict[str, Any] = {"who": "ada", "why": "drill", "dry_run": False}


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


def test_a_canary_that_refuses_half_of_the_good_is_rolled_back_by_itself(crowd: Crowd) -> None:
    crowd.trials.canary("half", 0.3, ttl=3600, **WHO)
    assert crowd.trials.state("half") == "canary 0.3"
    doors = crowd.calls(1500)
    refused = [number for number, door in enumerate(doors) if door.refusal]
    assert crowd.trials.state("half") == "off"
    assert 10 < len(refused) < 150
    assert refused[-1] < 1000
    assert crowd.rollbacks("half", "goodput") == 1
    assert crowd.journal() == [
        ("policy half", "off", "canary 0.3", "ada", "operator"),
        ("policy half", "canary 0.3", "off", "surgetank", "policy"),
    ]
    said = crowd.service.journal.recent()[-1].why
    assert said.startswith("worse than the live policy: goodput ")
    assert crowd.trials.fallen["half"] == f"goodput: {said}"


def test_a_canary_that_lets_in_what_comes_late_is_rolled_back(crowd: Crowd) -> None:
    crowd.trials.canary("welcome", 0.5, ttl=3600, **WHO)
    trial = crowd.rig.desk.policies.canary
    assert trial is not None
    for number in range(200):  # half of the calls can be served: the others are refused, or late
        ticket = crowd.rig.arrive()
        ticket.fingerprint = number.to_bytes(16)
        chosen = trial.takes(ticket)
        trial.decided(ticket, candidate=chosen, admitted=chosen or number % 2 == 0)
        trial.ended(ticket, Judged.LATE if number % 2 else Judged.GOOD)
    crowd.service.pass_time(0.25)
    assert crowd.trials.state("welcome") == "off"
    assert crowd.rollbacks("welcome", "late") == 1
    assert "late of what it admitted" in crowd.trials.fallen["welcome"]


def test_a_good_canary_stays_and_can_be_promoted(crowd: Crowd) -> None:
    crowd.trials.canary("welcome", 0.3, ttl=3600, **WHO)
    crowd.calls(1500)
    assert crowd.trials.state("welcome") == "canary 0.3"
    crowd.trials.promote("welcome", ttl=None, force=False, **WHO)
    assert crowd.trials.state("welcome") == "live"
    assert crowd.trials.state("laws") == "off"
    assert crowd.rig.desk.policies.canary is None
    crowd.trials.rollback("welcome", **WHO)
    assert (crowd.trials.state("welcome"), crowd.trials.state("laws")) == ("off", "live")
    assert [each[1:3] for each in crowd.journal()] == [
        ("off", "canary 0.3"),
        ("canary 0.3", "live"),
        ("live", "off"),
    ]


def test_what_is_live_decides(crowd: Crowd) -> None:
    crowd.trials.promote("never", ttl=60, force=True, **WHO)
    assert crowd.call().refusal is not None
    crowd.service.pass_time(61)  # until its end
    assert crowd.call().refusal is None
    assert crowd.rollbacks("never", "expiry") == 1


def test_what_is_live_and_late_gives_way_by_itself(crowd: Crowd) -> None:
    crowd.trials.promote("welcome", ttl=None, force=True, **WHO)
    for number in range(30):
        crowd.call(served_after=2.0 if number % 2 else 0.01)  # the target is a second
        crowd.service.pass_time(0.25)
    assert (crowd.trials.state("welcome"), crowd.trials.state("laws")) == ("off", "live")
    assert crowd.rollbacks("welcome", "late") == 1
    assert crowd.trials.fallen["welcome"].startswith("late: late since it is live: ")
    assert crowd.rig.desk.policies.probation is None


def test_what_is_live_and_in_time_stays(crowd: Crowd) -> None:
    crowd.trials.promote("welcome", ttl=None, force=True, **WHO)
    for number in range(200):
        crowd.call(served_after=0.01 if number % 20 else 2.0)
        crowd.service.pass_time(0.25)
    assert crowd.trials.state("welcome") == "live"
    watch = crowd.rig.desk.policies.probation
    assert watch is not None
    assert (watch.good, watch.late) == (190, 10)


def test_a_shadow_refuses_nobody_and_is_counted(crowd: Crowd) -> None:
    crowd.trials.shadow("half", ttl=600, **WHO)
    assert [door.refusal for door in crowd.calls(20)] == [None] * 20
    counter = crowd.rig.recorder.registry.counter("policy_shadow_decisions_total")
    assert counter.at("half", "admitted", "refused").value == 10
    seen = crowd.rig.desk.policies.shadows["half"].seen
    crowd.trials.shadow("half", ttl=900, **WHO)  # once more: a later end, and all it has seen
    assert crowd.rig.desk.policies.shadows["half"].seen is seen
    crowd.service.pass_time(601)
    assert crowd.trials.state("half") == "shadow"
    crowd.service.pass_time(300)
    assert crowd.trials.state("half") == "off"


@pytest.mark.parametrize("act", ["shadow", "canary"])
def test_a_policy_that_raises_is_taken_back(crowd: Crowd, act: str) -> None:
    if act == "shadow":
        crowd.trials.shadow("broken", ttl=600, **WHO)
    else:
        crowd.trials.canary("broken", 0.5, ttl=600, **WHO)
    assert [door.refusal for door in crowd.calls(40)] == [None] * 40
    assert crowd.trials.state("broken") == "off"
    assert crowd.rollbacks("broken", "errors") == 1
    assert "failed 5 times" in crowd.trials.fallen["broken"]


def test_a_promoted_policy_that_raises_gives_way(crowd: Crowd) -> None:
    crowd.trials.promote("broken", ttl=None, force=True, **WHO)
    assert [door.refusal for door in crowd.calls(20)] == [None] * 20
    assert (crowd.trials.state("broken"), crowd.trials.state("laws")) == ("off", "live")


def test_a_control_policy_in_the_shadow_and_as_a_canary(crowd: Crowd) -> None:
    crowd.trials.shadow("closed", ttl=600, **WHO)
    crowd.service.pass_time(0.25)
    assert crowd.call().refusal is None  # critical only, if it were obeyed
    seen = crowd.rig.desk.policies.shadows["closed"].seen
    assert seen.decisions[True, False] == 1
    assert crowd.service.limits.get(Limit.LOWEST_CLASS) == 3
    crowd.trials.canary("closed", 0.5, ttl=600, **WHO)
    assert not crowd.rig.desk.policies.shadows
    doors = crowd.calls(300)
    assert any(door.refusal for door in doors)
    assert crowd.trials.state("closed") == "off"
    assert crowd.service.limits.get(Limit.LOWEST_CLASS) == 3


def test_a_promoted_control_policy_sets_limits_until_it_is_taken_back(crowd: Crowd) -> None:
    crowd.trials.promote("small", ttl=None, force=True, **WHO)
    crowd.service.pass_time(0.25)
    get = crowd.service.limits.get
    assert (get(Limit.QUEUE_REQUESTS), get(Limit.MAX_NUM_SEQS)) == (7, 2)
    crowd.trials.rollback("small", **WHO)
    crowd.service.pass_time(0.25)
    assert (get(Limit.QUEUE_REQUESTS), get(Limit.MAX_NUM_SEQS)) == (256, 8)


def test_a_control_policy_that_raises_on_trial_is_taken_back(crowd: Crowd) -> None:
    crowd.trials.shadow("fragile", ttl=600, **WHO)
    for _ in range(6):
        crowd.service.pass_time(0.25)
    assert crowd.trials.state("fragile") == "off"
    assert crowd.service.policy_errors.value == 0


def test_an_override_wins_over_what_a_control_policy_supposes(crowd: Crowd) -> None:
    crowd.trials.shadow("closed", ttl=600, **WHO)
    crowd.service.actions.set_limit("lowest_class", 3, ttl=60, who="ada", why="all", force=True)
    crowd.service.pass_time(0.25)
    crowd.call()
    assert crowd.rig.desk.policies.shadows["closed"].seen.decisions[True, True] == 1


def test_another_promotion_takes_the_place_of_the_first(crowd: Crowd) -> None:
    crowd.trials.promote("welcome", ttl=None, force=True, **WHO)
    crowd.trials.promote("never", ttl=None, force=True, **WHO)
    assert (crowd.trials.state("welcome"), crowd.trials.state("never")) == ("off", "live")
    crowd.trials.rollback("never", **WHO)
    assert crowd.trials.state("laws") == "live"


def test_a_promotion_that_fails_costs_nobody_its_place(crowd: Crowd) -> None:
    crowd.trials.promote("welcome", ttl=60, force=True, **WHO)
    with pytest.raises(PolicyError, match="no 0 stars"):
        crowd.trials.promote("unbuilt", ttl=60, force=True, **WHO)
    assert [each[1:3] for each in crowd.journal()] == [("off", "live")]
    crowd.trials.rollback("welcome", **WHO)
    assert crowd.trials.state("laws") == "live"


def test_a_dry_run_changes_nothing(crowd: Crowd) -> None:
    dry = WHO | {"dry_run": True}
    change = crowd.trials.canary("half", 0.1, ttl=60, **dry)
    assert (change.before, change.after, change.dry_run) == ("off", "canary 0.1", True)
    crowd.trials.shadow("half", ttl=60, **dry)
    crowd.trials.promote("half", ttl=None, force=True, **dry)
    crowd.trials.rollback("half", **dry)
    assert (crowd.trials.state("half"), crowd.journal()) == ("off", [])


def test_rolling_back_what_is_off_writes_nothing(crowd: Crowd) -> None:
    crowd.trials.rollback("half", **WHO)
    assert crowd.journal() == []


def test_what_would_make_it_worse_is_refused_with_a_sentence(crowd: Crowd) -> None:
    trials = crowd.trials
    with pytest.raises(WouldWorsen, match="half was no canary: surgetank policy canary half"):
        trials.promote("half", ttl=None, force=False, **WHO)
    trials.canary("half", 0.1, ttl=60, **WHO)
    with pytest.raises(WouldWorsen, match="has decided on 0 calls of the 50"):
        trials.promote("half", ttl=None, force=False, **WHO)
    with pytest.raises(WouldWorsen, match="half is the canary; one at a time"):
        trials.canary("never", 0.1, ttl=60, **WHO)
    with pytest.raises(WouldWorsen, match=r"half is canary 0.1: surgetank policy rollback half"):
        trials.shadow("half", ttl=60, **WHO)
    with pytest.raises(WouldWorsen, match="laws is live: there is nothing to compare"):
        trials.canary("laws", 0.1, ttl=60, **WHO)
    with pytest.raises(WouldWorsen, match="brownout is live by configuration"):
        trials.rollback("brownout", **WHO)
    for name in ("never", "welcome", "closed", "none"):
        trials.shadow(name, ttl=60, **WHO)
    with pytest.raises(WouldWorsen, match="4 shadows are the most"):
        trials.shadow("envoy", ttl=60, **WHO)


def test_what_cannot_be_used_is_named(crowd: Crowd) -> None:
    with pytest.raises(UnknownName, match="no policy 'lucky'; there are: static, waste"):
        crowd.trials.shadow("lucky", ttl=60, **WHO)
    with pytest.raises(PolicyError, match="it is not well"):
        crowd.trials.shadow("ill", ttl=60, **WHO)
    with pytest.raises(
        PolicyError, match=r"policy 'unbuilt' of surgetank .*: LookupError: no 0 st"
    ):
        crowd.trials.shadow("unbuilt", ttl=60, **WHO)
    assert crowd.trials.state("unbuilt") == "off"


def test_goodput_is_shown_by_arm_while_there_is_a_canary(crowd: Crowd) -> None:
    registry = crowd.rig.recorder.registry
    crowd.trials.canary("half", 0.5, ttl=600, **WHO)
    crowd.calls(30)
    read = {each.spec.name: each.samples for each in registry.read()}
    arms = read["policy_canary_goodput_ratio"]
    assert arms[("live",)] == 1.0
    assert 0.2 < float(arms[("candidate",)]) < 0.8  # type: ignore[arg-type]
    crowd.trials.rollback("half", **WHO)
    read = {each.spec.name: each.samples for each in registry.read()}
    assert read["policy_canary_goodput_ratio"] == {}
