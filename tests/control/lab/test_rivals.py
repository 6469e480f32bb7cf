"""Rivals: each keeps the limit that its name promises, and learns as its source says."""

import random
import sys

import pytest

from surgetank.admission.policies.envoy import Envoy
from surgetank.admission.policies.gradient2 import Gradient2
from surgetank.admission.policies.in_flight import InFlight
from surgetank.admission.policies.kv_threshold import KvThreshold
from surgetank.admission.policies.queue_cap import QueueCap
from surgetank.admission.policies.rule import Seen
from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.control.lab.faults import parse_fault
from surgetank.control.lab.inputs import Item, Mix, synthetic
from surgetank.control.lab.judge import judge, tries
from surgetank.control.lab.rivals.admitperf import AdmitPerf, RivalMissing
from surgetank.control.lab.rivals.table import POLICIES, UnknownPolicy
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.world import Scenario, play

MIX = Mix(prompt_median=100, output_median=20, max_tokens=64)
SPEC = EngineSpec(max_num_seqs=16, max_batch_tokens=256)


def calls(load: float, seconds: float = 10.0) -> list[Item]:
    rate = load * SPEC.capacity(*MIX.means(), 0.1)
    return synthetic(MIX, rate, 0.0, seconds, random.Random(1))


def test_static_limits() -> None:
    assert InFlight(lambda: 2).admits(0.0, 1, Seen(in_flight=1))
    assert not InFlight(lambda: 2).admits(0.0, 1, Seen(in_flight=2))
    assert not QueueCap(requests=3).admits(0.0, 1, Seen(waiting=3))
    assert QueueCap(tokens=100).admits(0.0, 40, Seen(waiting=9, waiting_tokens=60))
    assert not QueueCap(tokens=100).admits(0.0, 41, Seen(waiting_tokens=60))
    assert KvThreshold(0.9).admits(0.0, 1, Seen(kv_usage=0.89))
    assert not KvThreshold(0.9).admits(0.0, 1, Seen(kv_usage=0.9))


def seconds_of(policy: Gradient2, first: int, latencies: list[float], in_flight: int) -> None:
    """Twenty requests end in each second, all with that second's latency."""
    for second, latency in enumerate(latencies, first):
        for part in range(20):
            now = second + (part + 1) / 20
            policy.ended(now - latency, now, True, Seen(in_flight=in_flight))


def test_gradient2_grows_by_the_queue_while_latency_is_steady() -> None:
    policy = Gradient2()
    seconds_of(policy, 0, [1.0] * 5, in_flight=30)
    # .8 * limit + .2 * (limit + 4) from 20: .8 more in each of five windows.
    assert policy.limit == pytest.approx(20 + 5 * 0.8)


def test_gradient2_shrinks_when_latency_rises_and_stays_when_idle() -> None:
    policy = Gradient2()
    seconds_of(policy, 0, [1.0] * 50, in_flight=60)
    before = policy.limit
    seconds_of(policy, 50, [6.0] * 3, in_flight=60)
    assert policy.limit < before
    low = policy.limit
    seconds_of(policy, 53, [1.0] * 3, in_flight=2)
    assert policy.limit == low


def test_envoy_measures_with_three_and_then_follows_the_gradient() -> None:
    policy = Envoy(random.Random(1))
    assert [policy.admits(0.0, 1, Seen(in_flight=n)) for n in (2, 3)] == [True, False]
    for number in range(50):
        now = 0.1 * (number + 1)
        policy.ended(now - 0.1, now, True, Seen(in_flight=2))
    # The ideal latency is .1 s. At .1 s the gradient is 1.25: 3 * 1.25 + sqrt(3.75) = 5.68.
    policy.ended(5.1, 5.2, True, Seen(in_flight=2))
    assert policy.limit == 5
    policy.ended(4.3, 5.3001, True, Seen(in_flight=2))  # ten times the ideal: halved at most
    assert policy.limit == 4  # 2.5 + sqrt(2.5)


def test_envoy_measures_again_after_five_windows_at_the_least_limit() -> None:
    policy = Envoy(random.Random(1))
    for number in range(50):
        policy.ended(0.0, 0.01 * (number + 1), True, Seen())
    now = 1.0
    for _ in range(12):
        policy.ended(now - 5.0, now, True, Seen())
        now += 0.2
    policy.admits(now, 1, Seen())
    assert policy.limit == 3
    old = policy._measuring_since
    assert old is not None
    policy.ended(old - 1.0, now + 1.0, True, Seen())  # begun before: not a sample
    assert policy._samples == []


def test_admitperf_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "admitperf.policies", None)
    with pytest.raises(RivalMissing, match="pip install admitperf"):
        AdmitPerf("KvThreshold", threshold=0.9)


@pytest.mark.parametrize("name", [n for n in POLICIES if not n.startswith("admitperf")])
def test_every_policy_serves_a_light_load(name: str) -> None:
    run = play(Scenario(policy=name, engine=SPEC), calls(0.3, seconds=20.0))
    served = judge(run)
    late = served.between(10.0, 20.0)  # two of them learn at first
    assert served.success(late) > 0.6 if name == "envoy" else served.success(late) == 1.0


def test_unknown_policies_are_told_the_known_ones() -> None:
    with pytest.raises(UnknownPolicy, match="there are: ours, none"):
        play(Scenario(policy="best"), [])


def test_without_a_gate_overload_is_a_collapse_and_the_oracle_knows_better() -> None:
    items = calls(3.0, seconds=30.0)
    patient = ((BEHAVIOURS["patient"], 1.0),)
    goodput = {}
    for name in ("none", "oracle"):
        run = play(Scenario(policy=name, engine=SPEC, clients=patient), items)
        goodput[name] = judge(run).goodput(5.0, 30.0)
        if name == "oracle":
            kept = tries(run)
            assert kept.good[kept.served].mean() > 0.99  # what it hands over is in time
    assert goodput["oracle"] > 0.85  # engine-seconds per second
    assert goodput["none"] < 0.3 * goodput["oracle"]


def test_two_sidecars_share_an_engine_or_have_one_each() -> None:
    items = calls(0.8, seconds=10.0)
    shared = play(Scenario(policy="none", engine=SPEC, sidecars=2), items)
    own = play(Scenario(policy="none", engine=SPEC, sidecars=2, engines="own"), items)
    assert (len(shared.engines), len(own.engines)) == (1, 2)
    assert judge(shared).ok.all()
    assert judge(own).ok.all()
    assert own.engines[0].busy < shared.engines[0].busy


def test_every_call_has_one_row_whatever_happens_to_the_engine() -> None:
    faults = tuple(map(parse_fault, ("crash@2+1", "stall@4+2", "kv-loss@7+1x0.9", "slow@8+1x5")))
    for name in ("ours", "static-queue", "oracle"):
        scenario = Scenario(
            policy=name, engine=SPEC, faults=faults, clients=((BEHAVIOURS["immediate-3"], 1.0),)
        )
        items = calls(1.5)
        run = play(scenario, items)
        assert sorted(run.log.calls.number) == list(range(len(items)))
        assert sum(run.log.calls.attempts) >= len(run.log.attempts.call)
        assert len(set(zip(run.log.attempts.call, run.log.attempts.number, strict=True))) == len(
            run.log.attempts.call
        )
