"""Quotas of a single sidecar in virtual time: what is there, what is missing, what comes back."""

import math

import pytest
from pydantic import SecretStr, ValidationError

from surgetank.admission.leases.config import LeasesConfig, TenantQuota
from surgetank.admission.leases.quotas import Denied, Mode, Quota, Quotas, Taken
from surgetank.telemetry.clock import ManualClock

QUOTA = TenantQuota(requests_per_minute=60, tokens_per_minute=6000, concurrency=2)
ONE = {Quota.REQUESTS: 1.0, Quota.TOKENS: 100.0, Quota.CONCURRENCY: 1.0}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quotas(clock: ManualClock) -> Quotas:
    config = LeasesConfig(default=QUOTA, tenants={"free": TenantQuota()}, burst=10)
    return Quotas(config, clock)


def taken(result: Taken | Denied) -> Taken:
    assert isinstance(result, Taken)
    return result


def denied(result: Taken | Denied) -> Denied:
    assert isinstance(result, Denied)
    return result


def test_a_denial_says_what_how_much_and_when(quotas: Quotas, clock: ManualClock) -> None:
    taken(quotas.take("a", {Quota.TOKENS: 950}))
    said = denied(quotas.take("a", {Quota.TOKENS: 100}))
    assert said == Denied(Quota.TOKENS, 1000.0, 1050.0, 0.5, 1.0)
    clock.advance(0.49)
    denied(quotas.take("a", {Quota.TOKENS: 100}))
    clock.advance(0.02)
    taken(quotas.take("a", {Quota.TOKENS: 100}))


def test_all_or_nothing(quotas: Quotas) -> None:
    for _ in range(2):
        taken(quotas.take("a", ONE))
    for _ in range(50):
        assert denied(quotas.take("a", ONE)).limit is Quota.CONCURRENCY
    taken(quotas.take("a", {Quota.REQUESTS: 8, Quota.TOKENS: 800}))  # all that is left of 10, 1000


def test_the_end_frees_the_slot_and_refunds_what_was_not_used(quotas: Quotas) -> None:
    request = taken(quotas.take("a", {Quota.TOKENS: 1000, Quota.CONCURRENCY: 2}))
    request.end({Quota.TOKENS: 300})
    assert denied(quotas.take("a", {Quota.TOKENS: 301})).measured == pytest.approx(1001)
    taken(quotas.take("a", {Quota.TOKENS: 300, Quota.CONCURRENCY: 2})).undo()
    taken(quotas.take("a", {Quota.TOKENS: 300, Quota.CONCURRENCY: 2}))
    for again in (request.end, request.undo):
        with pytest.raises(RuntimeError, match="twice"):
            again()


def test_a_refund_is_never_more_than_was_taken(quotas: Quotas) -> None:
    taken(quotas.take("a", {Quota.TOKENS: 1000}))
    taken(quotas.take("a", {Quota.REQUESTS: 1})).end({Quota.TOKENS: 500})
    denied(quotas.take("a", {Quota.TOKENS: 1}))


def test_what_is_dearer_than_the_bucket_passes_when_it_is_full(
    quotas: Quotas, clock: ManualClock
) -> None:
    taken(quotas.take("a", {Quota.TOKENS: 3000}))
    assert denied(quotas.take("a", {Quota.TOKENS: 1})).refill_in == pytest.approx(20.01)
    clock.advance(20.0)
    denied(quotas.take("a", {Quota.TOKENS: 1}))
    clock.advance(0.1)
    taken(quotas.take("a", {Quota.TOKENS: 1}))


def test_tenants_are_apart_and_may_be_free(quotas: Quotas) -> None:
    taken(quotas.take("a", {Quota.TOKENS: 1000}))
    taken(quotas.take("b", {Quota.TOKENS: 1000}))
    for _ in range(100):
        taken(quotas.take("free", {Quota.TOKENS: 1e9, Quota.CONCURRENCY: 1}))


def test_no_window_gets_more_than_rate_and_burst(quotas: Quotas, clock: ManualClock) -> None:
    times = []
    for _ in range(2000):
        if isinstance(quotas.take("a", {Quota.TOKENS: 100}), Taken):
            times.append(clock.monotonic())
        clock.advance(0.05)
    for start in range(len(times)):
        for end in range(start, len(times), 7):
            window = times[end] - times[start]
            assert 100 * (end - start + 1) <= 100 * window + 1000 + 1e-6
    assert 100 * len(times) >= 0.99 * 100 * 100


def test_first_attempts_earn_retries(clock: ManualClock) -> None:
    quotas = Quotas(LeasesConfig(retry_floor=0.0), clock)
    assert denied(quotas.take("a", {Quota.RETRIES: 0.5})).refill_in == math.inf
    quotas.earn(1.0)
    clock.advance(50.0)
    quotas.earn(1.0)
    clock.advance(4.0)
    spent = 0.0
    for _ in range(100):
        spent += 0.1 * isinstance(quotas.take("a", {Quota.RETRIES: 0.1}), Taken)
    assert 0.2 <= spent <= 1.0


def test_single_needs_no_redis(quotas: Quotas) -> None:
    assert quotas.mode is Mode.SINGLE
    assert quotas.sidecars == 1


def test_one_that_never_met_redis_takes_its_part_only(clock: ManualClock) -> None:
    url = SecretStr("redis://127.0.0.1:1")
    quotas = Quotas(LeasesConfig(url=url, sidecars=4, default=QUOTA), clock)
    assert quotas.mode is Mode.ALONE
    assert denied(quotas.take("a", {Quota.CONCURRENCY: 1})).allowed == 0
    taken(quotas.take("a", {Quota.TOKENS: 250}))
    assert denied(quotas.take("a", {Quota.TOKENS: 25})).refill_in == pytest.approx(1.0)


def test_strange_tenants_do_not_fill_the_memory(quotas: Quotas) -> None:
    for n in range(20_000):
        quotas.take(f"tenant {n}", ONE)
    assert remembered(quotas) <= 16_385


def remembered(quotas: Quotas) -> int:
    return len({name.partition(":")[0] for name, _ in quotas.pools()})


def test_a_setting_out_of_range_is_named() -> None:
    with pytest.raises(ValidationError, match=r"timeout[\s\S]*less than or equal to 1"):
        LeasesConfig(timeout=5)


def test_busy_tenants_keep_their_limits_however_many_there_are(
    quotas: Quotas, clock: ManualClock
) -> None:
    tenants = [f"tenant {n}" for n in range(1100)]
    held = [taken(quotas.take(tenant, {Quota.CONCURRENCY: 2})) for tenant in tenants]
    for tenant in tenants:
        denied(quotas.take(tenant, {Quota.CONCURRENCY: 2}))
    for each in held:
        each.end()
    for tenant in tenants:
        taken(quotas.take(tenant, {Quota.REQUESTS: 10}))
    for tenant in tenants:
        denied(quotas.take(tenant, {Quota.REQUESTS: 1}))
    clock.advance(10)  # they are as new again
    for n in range(1100):
        taken(quotas.take(f"another {n}", {Quota.REQUESTS: 1}))
    assert remembered(quotas) <= 1101
