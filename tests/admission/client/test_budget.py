"""A client's retry budget: what calls earn, for how long, and the floor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgetank.admission.client.budget import RetryBudget
from surgetank.telemetry.clock import ManualClock


def test_ten_calls_earn_one_retry() -> None:
    budget = RetryBudget(ratio=0.1, floor=0.0, clock=ManualClock())
    for _ in range(10):
        assert not budget.withdraw()
        budget.deposit()
    assert budget.withdraw()
    assert not budget.withdraw()
    assert budget.balance == pytest.approx(0.0)


def test_deposits_expire() -> None:
    clock = ManualClock()
    budget = RetryBudget(ratio=1.0, floor=0.0, ttl=10.0, clock=clock)
    budget.deposit()
    clock.advance(9.9)
    assert budget.balance == 1.0
    clock.advance(0.2)
    assert budget.balance == 0.0


def test_the_floor_fills_a_reserve() -> None:
    clock = ManualClock()
    budget = RetryBudget(ratio=0.0, floor=0.5, ttl=10.0, clock=clock)
    assert [budget.withdraw() for _ in range(6)] == [True] * 5 + [False]
    clock.advance(4.0)
    assert [budget.withdraw() for _ in range(3)] == [True, True, False]
    clock.advance(100.0)
    assert budget.balance == 5.0


@given(st.lists(st.tuples(st.sampled_from(["call", "retry"]), st.floats(0.0, 3.0)), max_size=200))
def test_never_more_than_was_earned(moves: list[tuple[str, float]]) -> None:
    clock = ManualClock()
    budget = RetryBudget(ratio=0.2, floor=0.5, ttl=10.0, clock=clock)
    calls = retries = 0
    for what, pause in moves:
        clock.advance(pause)
        if what == "call":
            budget.deposit()
            calls += 1
        else:
            retries += budget.withdraw()
        assert budget.balance > -1e-6
    assert retries <= 0.2 * calls + 0.5 * (clock.monotonic() + 10.0) + 1e-6


def test_a_setting_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match="ratio is 2; allowed: 0 to 1"):
        RetryBudget(ratio=2)
