"""Base values, overrides that expire, ranges, and what an engine's size does to them."""

import math

import pytest
from pydantic import ValidationError

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import SPECS, Limit, LimitChange, LimitError, Limits, limit_named

QUEUE = Limit.QUEUE_REQUESTS


def test_an_override_wins_until_it_expires_and_the_base_may_move_below_it() -> None:
    limits = Limits({QUEUE: 20})
    changes: list[LimitChange] = []
    limits.on_change(changes.append)
    limits.override(QUEUE, 50, until=100.0, who="ann", why="burst")
    limits.set_base(QUEUE, 30, "policy")
    limits.expire(99.9)
    assert limits.get(QUEUE) == 50
    limits.expire(100.0)
    assert limits.get(QUEUE) == 30
    assert changes == [
        LimitChange(QUEUE, 20, 50, "operator"),
        LimitChange(QUEUE, 50, 50, "policy"),
        LimitChange(QUEUE, 50, 30, "expiry"),
    ]
    assert limits.next_expiry == math.inf


def test_an_override_can_be_replaced_shortened_and_taken_back() -> None:
    limits = Limits()
    limits.override(QUEUE, 50, until=100.0, who="ann", why="burst")
    limits.override(QUEUE, 60, until=10.0, who="bob", why="less")
    assert limits.next_expiry == 10.0
    view = next(view for view in limits.snapshot() if view.name is QUEUE)
    assert (view.current, view.base, view.override and view.override.who) == (60, 256, "bob")
    limits.clear(QUEUE)
    limits.clear(QUEUE)
    assert limits.get(QUEUE) == 256


@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, math.inf, 1_000_001])
def test_a_value_out_of_range_changes_nothing_and_names_key_value_and_range(value: float) -> None:
    limits = Limits()
    with pytest.raises(LimitError, match=r"queue_requests: .* requests; allowed: "):
        limits.override(QUEUE, value, until=9.0, who="op", why="test")
    with pytest.raises(LimitError, match=r"queue_requests: .* requests; allowed: "):
        limits.set_base(QUEUE, value, "config")
    assert limits.get(QUEUE) == 256
    assert limits.next_expiry == math.inf


def test_what_the_engine_can_do_cuts_base_and_override() -> None:
    limits = Limits()
    limits.set_maximum(Limit.IN_FLIGHT_SEQS, 32, "engine")
    assert limits.get(Limit.IN_FLIGHT_SEQS) == 32
    with pytest.raises(LimitError, match="allowed: 1 to 32"):
        limits.override(Limit.IN_FLIGHT_SEQS, 33, until=9.0, who="op", why="test")
    limits.override(Limit.IN_FLIGHT_SEQS, 30, until=9.0, who="op", why="test")
    limits.set_maximum(Limit.IN_FLIGHT_SEQS, 8, "engine")
    assert limits.get(Limit.IN_FLIGHT_SEQS) == 8
    limits.set_maximum(Limit.IN_FLIGHT_SEQS, 64, "engine")
    assert limits.get(Limit.IN_FLIGHT_SEQS) == 30


def test_the_configuration_has_every_limit_with_its_range() -> None:
    configured = {name: SPECS[name] for name in Limit if name in GateConfig.model_fields}
    assert len(configured) == 10
    assert GateConfig().base_limits() == {name: s.default for name, s in configured.items()}
    for name, spec in configured.items():
        for value in (spec.minimum - 0.01, spec.maximum + 1, -1):
            with pytest.raises(ValidationError, match=name):
                GateConfig.model_validate({name.value: value})
    with pytest.raises(ValidationError, match="queue_request"):
        GateConfig.model_validate({"queue_request": 5})


def test_an_unknown_limit_is_told_those_that_exist() -> None:
    assert limit_named("kv_reserve") is Limit.KV_RESERVE
    with pytest.raises(LimitError, match=r"no limit 'queue'; there are: queue_requests, "):
        limit_named("queue")


def test_what_is_supposed_is_answered_inside_only_and_overrides_still_win() -> None:
    limits = Limits({Limit.QUEUE_REQUESTS: 10})
    limits.set_maximum(Limit.MAX_NUM_SEQS, 8, "engine")
    limits.override(Limit.KAPPA, 0.4, until=9.0, who="ada", why="drill")
    wanted = {Limit.QUEUE_REQUESTS: 3.0, Limit.KAPPA: 0.9, Limit.MAX_NUM_SEQS: 64.0}
    names = (*wanted, Limit.MAX_N)
    with limits.supposing(wanted):
        assert [limits.get(name) for name in names] == [3.0, 0.4, 8.0, 16.0]
        seen = {view.name: view.current for view in limits.snapshot()}
        assert seen[Limit.QUEUE_REQUESTS] == 10
    assert [limits.get(name) for name in names] == [10.0, 0.4, 8.0, 16.0]
    assert limits.possible(Limit.MAX_NUM_SEQS, 64) == 8
    with pytest.raises(LimitError, match=r"kappa: 0 share; allowed: 0\.05 to 2"):
        limits.possible(Limit.KAPPA, 0.0)
