"""What headers may say, and what happens to those that say it wrongly."""

import random

import pytest

from surgetank.admission.api import Headers
from surgetank.admission.arrival import Arrival, Problem, read_arrival
from surgetank.admission.tenants import Tenants, TenantsConfig
from surgetank.telemetry.vocabulary import Lane, Priority

PROXY = "10.1.2.3"


def read(*headers: tuple[str, str], peer: str = "127.0.0.1") -> Arrival:
    config = TenantsConfig.model_validate({"trusted_proxies": ["10.1.0.0/16"]})
    rng = random.Random(1)
    return read_arrival(headers, rng=rng, tenants=Tenants(config, rng), peer=peer)


@pytest.mark.parametrize(
    ("name", "value", "attempt"),
    [
        ("grpc-previous-rpc-attempts", "2", 2),
        ("x-stainless-retry-count", "0", 0),
        ("x-stainless-retry-count", "1", 1),
        ("x-envoy-attempt-count", "1", 0),
        ("x-envoy-attempt-count", "3", 2),
        ("amz-sdk-request", "attempt=1; max=3", 0),
        ("amz-sdk-request", "ttl=20260101T000000Z; attempt=4; max=5", 3),
        ("x-surgetank-attempt", "7", 7),
    ],
)
def test_each_header_that_states_an_attempt(name: str, value: str, attempt: int) -> None:
    seen = read((name, value))
    assert seen.attempt == attempt
    assert seen.lane is (Lane.RETRY if attempt else Lane.FIRST)
    assert seen.detected_by == (name if attempt else "none")
    assert not seen.ignored


def test_of_several_layers_the_highest_attempt_counts() -> None:
    seen = read(("x-stainless-retry-count", "1"), ("x-envoy-attempt-count", "3"))
    assert (seen.attempt, seen.detected_by) == (2, "x-envoy-attempt-count")


@pytest.mark.parametrize(
    ("name", "value", "deadline", "patience"),
    [
        ("grpc-timeout", "100m", 0.1, None),
        ("grpc-timeout", "99999999n", 0.099999999, None),
        ("grpc-timeout", "2H", 7200.0, None),
        ("grpc-timeout", "0n", 0.0, None),
        ("x-surgetank-timeout", "2.5", 2.5, None),
        ("x-stainless-read-timeout", "600", None, 600.0),
        ("x-stainless-read-timeout", "0.5", None, 0.5),
        ("x-stainless-timeout", "60", None, 60.0),
        ("x-stainless-timeout", "0", None, 1.0),
    ],
)
def test_each_header_that_states_a_timeout(
    name: str, value: str, deadline: float | None, patience: float | None
) -> None:
    seen = read((name, value))
    assert seen.deadline == (None if deadline is None else pytest.approx(deadline))
    assert seen.patience == patience
    assert not seen.ignored


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("x-stainless-retry-count", "-1", Problem.MALFORMED),
        ("x-stainless-retry-count", "1.0", Problem.MALFORMED),
        ("x-stainless-retry-count", "", Problem.MALFORMED),
        ("x-stainless-retry-count", "٣", Problem.MALFORMED),
        ("x-stainless-retry-count", "1\n", Problem.MALFORMED),
        ("x-stainless-retry-count", "1000000", Problem.OUT_OF_RANGE),
        ("x-stainless-retry-count", "9" * 5000, Problem.MALFORMED),
        ("x-envoy-attempt-count", "0", Problem.OUT_OF_RANGE),
        ("amz-sdk-request", "max=3", Problem.MALFORMED),
        ("grpc-timeout", "100", Problem.MALFORMED),
        ("grpc-timeout", "123456789m", Problem.MALFORMED),
        ("grpc-timeout", "99999999H", Problem.OUT_OF_RANGE),
        ("x-surgetank-timeout", "nan", Problem.MALFORMED),
        ("x-surgetank-timeout", "inf", Problem.MALFORMED),
        ("x-surgetank-timeout", "-5", Problem.MALFORMED),
        ("x-surgetank-timeout", "1e9", Problem.MALFORMED),
        ("x-surgetank-timeout", "0", Problem.OUT_OF_RANGE),
        ("x-surgetank-timeout", "100000", Problem.OUT_OF_RANGE),
        ("x-surgetank-timeout", "10s", Problem.MALFORMED),
        ("x-surgetank-priority", "urgent", Problem.MALFORMED),
        ("x-surgetank-priority", "0", Problem.RAISED),
        ("x-smg-priority", "critical", Problem.RAISED),
        ("x-request-id", "a b", Problem.MALFORMED),
        ("x-request-id", "a\r\nset-cookie: x", Problem.MALFORMED),
        ("x-request-id", "x" * 129, Problem.MALFORMED),
        ("x-surgetank-tenant", "acme", Problem.UNTRUSTED),
        ("traceparent", f"00-{'0' * 32}-{'1' * 16}-01", Problem.MALFORMED),
    ],
)
def test_a_doubtful_header_is_ignored_and_counted(name: str, value: str, problem: Problem) -> None:
    seen, nothing = read((name, value)), read()
    assert seen.ignored == {(name, problem): 1}
    for field in ("id", "attempt", "lane", "priority", "tenant", "deadline", "patience"):
        assert getattr(seen, field) == getattr(nothing, field)


@pytest.mark.parametrize("second", ["X-Stainless-Retry-Count", "x-stainless-retry-count"])
def test_two_values_are_none_never_the_last(second: str) -> None:
    for values in (("1", "2"), ("2", "1"), ("1", "2", "1")):
        seen = read(
            *(("x-stainless-retry-count" if i else second, v) for i, v in enumerate(values))
        )
        assert seen.attempt == 0
        assert seen.ignored == {("x-stainless-retry-count", Problem.CONFLICT): 1}


def test_the_same_value_twice_is_one() -> None:
    seen = read(("x-request-id", "abc"), ("X-Request-ID", " abc "))
    assert seen.id == "abc"
    assert not seen.ignored


@pytest.mark.parametrize(
    ("headers", "priority"),
    [
        ((), Priority.DEFAULT),
        ([("x-surgetank-priority", "batch")], Priority.BATCH),
        ([("x-gateway-inference-objective", "sheddable")], Priority.SHEDDABLE),
        ([("x-smg-priority", "2"), ("x-surgetank-priority", "critical")], Priority.BATCH),
    ],
)
def test_a_header_lowers_the_class_and_never_raises_it(
    headers: Headers, priority: Priority
) -> None:
    assert read(*headers).priority is priority


def test_a_trusted_proxy_names_one_tenant() -> None:
    named = ("x-gateway-inference-fairness-id", "acme")
    assert read(named, peer=PROXY).tenant == "acme"
    assert read(named).tenant == ""
    seen = read(named, ("x-smg-tenant-id", "other"), peer=PROXY)
    assert seen.tenant == ""
    assert sum(seen.ignored.values()) == 2


def test_a_trace_gives_the_id_where_there_is_no_better_one() -> None:
    trace = ("traceparent", f"00-{'ab' * 16}-{'1' * 16}-01")
    assert read(trace).id == "ab" * 16
    assert read(trace, ("x-request-id", "mine")).id == "mine"
    assert len(read().id) == 32
