"""Quotas at the gate: what a request takes, when it comes back, and what a denied one is told."""

import random

import pytest
from pydantic import SecretStr
from tests.admission.rig import Rig, refused

from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig, TenantQuota
from surgetank.admission.leases.quotas import Quota
from surgetank.admission.outcome import Refusal
from surgetank.admission.tenants import Tenants, TenantsConfig
from surgetank.telemetry.vocabulary import Outcome, Reason

RETRY = [("x-stainless-retry-count", "1")]


def rig_with(config: GateConfig | None = None, **quota: float) -> Rig:
    return Rig(config, leases=LeasesConfig(default=TenantQuota.model_validate(quota)))


def level(rig: Rig, quota: Quota) -> float:
    """What the tenant has left."""
    pool = dict(rig.quotas.pools())[f":{quota}"]
    return pool.capacity - pool.taken_with(0.0)


def test_requests_beyond_the_rate_are_refused_with_their_refill_time() -> None:
    rig = rig_with(requests_per_minute=30)  # one in two seconds, five at once
    assert [rig.send().refusal for _ in range(5)] == [None] * 5
    refusal = refused(rig.send())
    assert (refusal.outcome, refusal.reason) == (Outcome.QUOTA, Reason.TENANT_QUOTA)
    assert (refusal.measured, refusal.limit) == (6, 5)
    assert refusal.limit_name == "requests_per_minute"
    assert refusal.retry_after is not None
    assert 2.0 <= refusal.retry_after <= 2.4
    later = [refused(rig.send()).retry_after for _ in range(40)]
    given = [wait for wait in later if wait is not None]
    assert given[0] == pytest.approx(4.0, rel=0.2)  # each after the one before
    assert 20 <= len(given) <= 30  # up to a minute ahead; the others are told not to retry
    rig.timer.advance(2.0)
    assert rig.send().refusal is None
    assert rig.recorder.totals().outcomes[Outcome.QUOTA] == 41
    rig.check_conservation()


def test_a_quotas_denials_move_nobody_elses_slot() -> None:
    rig = rig_with(GateConfig(queue_requests=1, in_flight_seqs=1), concurrency=3)
    rig.send()
    rig.send()
    before = refused(rig.send()).retry_after
    for _ in range(30):
        rig.desk.refuse(rig.arrive(), _quota_refusal())
    after = refused(rig.send()).retry_after
    assert before is not None
    assert after is not None
    assert after < 2.5 * before


def _quota_refusal() -> Refusal:
    other = rig_with(requests_per_minute=6)
    other.send()
    return refused(other.send())


def test_the_end_gives_back_the_slot_and_the_tokens_that_were_not_used() -> None:
    rig = rig_with(tokens_per_minute=6000, concurrency=1)  # 1,000 tokens at once
    rig.send(prompt=40, max_tokens=60)
    assert level(rig, Quota.TOKENS) == pytest.approx(900)
    refusal = refused(rig.send())
    assert refusal.limit_name == "concurrency"
    rig.backend.finish(1, "ok")  # two tokens
    assert level(rig, Quota.TOKENS) == pytest.approx(1000 - 42)
    assert level(rig, Quota.CONCURRENCY) == 1


def test_what_never_reached_the_engine_used_no_tokens() -> None:
    rig = rig_with(GateConfig(in_flight_seqs=1), tokens_per_minute=6000, concurrency=2)
    rig.occupy()
    waiting = rig.send(prompt=40, max_tokens=60)
    assert waiting.call is not None
    before = level(rig, Quota.TOKENS)
    waiting.call.cancel()
    assert level(rig, Quota.TOKENS) == pytest.approx(before + 100)
    assert level(rig, Quota.CONCURRENCY) == 1


def test_what_the_gate_refuses_costs_no_quota() -> None:
    rig = rig_with(GateConfig(queue_requests=1, in_flight_seqs=1), requests_per_minute=60)
    rig.send()
    rig.send()
    left = level(rig, Quota.REQUESTS)
    assert refused(rig.send()).outcome is Outcome.OVERLOAD
    assert level(rig, Quota.REQUESTS) == left == pytest.approx(8)


def test_a_request_that_fails_on_its_way_in_gives_everything_back() -> None:
    rig = rig_with(requests_per_minute=60, concurrency=1)
    assert refused(rig.send(stop=[""])).outcome is Outcome.INTERNAL
    assert level(rig, Quota.REQUESTS) == pytest.approx(10)
    assert level(rig, Quota.CONCURRENCY) == 1


def test_a_lost_engine_gives_every_slot_back() -> None:
    rig = rig_with(GateConfig(in_flight_seqs=2), concurrency=8)
    for _ in range(8):
        rig.send()
    assert level(rig, Quota.CONCURRENCY) == 0
    rig.backend.die()
    assert level(rig, Quota.CONCURRENCY) == 8


def test_a_contended_retry_pays_from_the_budget_of_all_sidecars() -> None:
    """The part of one that meets no Redis; its own budget would let the retry pass."""
    leases = LeasesConfig(url=SecretStr("redis://127.0.0.1:1"), sidecars=10, retry_floor=0.0)
    rig = Rig(GateConfig(in_flight_seqs=1, retry_share=1e-9), leases=leases)
    rig.occupy()
    refusal = refused(rig.send(headers=RETRY))
    assert (refusal.outcome, refusal.limit_name) == (Outcome.RETRY_BUDGET, "retry_budget_fleet")
    assert refusal.retry_after is None


def test_first_attempts_earn_for_the_retries_of_all() -> None:
    leases = LeasesConfig(url=SecretStr("redis://127.0.0.1:1"), sidecars=10, retry_floor=0.0)
    rig = Rig(GateConfig(in_flight_seqs=1, retry_share=1.0), leases=leases)
    rig.occupy()
    for _ in range(20):
        rig.send()
    rig.timer.advance(1.0)
    assert rig.send(headers=RETRY).refusal is None


def test_one_at_its_quota_is_promised_nothing_of_the_retry_budget() -> None:
    keys = [{"key": f"sk-{name}-0001", "tenant": name} for name in ("hog", "other")]
    hog, other = ([("authorization", f"Bearer {key['key']}")] for key in keys)
    leases = LeasesConfig(tenants={"hog": TenantQuota(concurrency=2)})
    tenants = Tenants(TenantsConfig.model_validate({"keys": keys}), random.Random(1))
    rig = Rig(GateConfig(in_flight_seqs=1), leases=leases, tenants=tenants)
    for _ in range(2):
        rig.send(headers=hog)
    for length in range(4, 40):
        assert refused(rig.send(prompt=length, headers=hog)).retry_after is not None
    assert rig.send(headers=[*other, *RETRY]).refusal is None


def test_without_quotas_nothing_is_asked() -> None:
    rig = Rig()
    assert rig.quotas.unlimited
    rig.send(headers=RETRY)
    assert [name for name, _ in rig.quotas.pools()] == [":retry_budget"]
