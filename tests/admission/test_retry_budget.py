"""The retry lane's budget is never negative and never exceeded; promises are kept apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgetank.admission.retry_budget import FLOOR_SHARE, TTL, Account, RetryBudget

MEAN = 0.02


def drained(mean: float = MEAN) -> RetryBudget:
    """A budget whose reserve was spent at time 0."""
    budget = RetryBudget(0.0, mean)
    while budget.short_of("", mean, 0.0, promised=True) is None:
        budget.withdraw("", mean, 0.0)
    return budget


def test_retries_spend_what_first_attempts_earned_and_deposits_lapse() -> None:
    budget = drained()
    for tick in range(100):
        budget.deposit("", 0.1 * 0.05, tick * 0.05)
    earned = budget.balance(5.0)
    assert earned == pytest.approx(0.5 + min(MEAN, FLOOR_SHARE) * 5, rel=0.05)
    assert budget.short_of("", 0.4, 5.0, promised=True) is None
    budget.withdraw("", 0.4, 5.0)
    assert budget.balance(5.0) == pytest.approx(earned - 0.4)
    assert budget.balance(5.0 + TTL) == pytest.approx(TTL * MEAN), "only the floor is left"


def test_a_service_with_little_traffic_can_still_retry_now_and_then() -> None:
    budget = drained()
    assert budget.short_of("", MEAN, 0.5, promised=True) == "tenant"
    assert budget.short_of("", MEAN, 1.0, promised=True) is None


def test_a_request_dearer_than_the_reserve_passes_when_the_reserve_is_full() -> None:
    budget = drained(mean=2.0)
    assert budget.short_of("", 5.0, 30.0, promised=True) == "tenant"
    assert budget.short_of("", 5.0, 40.1, promised=True) is None
    budget.withdraw("", 5.0, 40.1)
    assert budget.balance(40.1) == 0.0


def test_one_tenants_storm_leaves_the_others_their_own() -> None:
    budget = drained()
    budget.deposit("calm", 0.2, 1.0)
    budget.deposit("storm", 0.2, 1.0)
    spent = 0
    while budget.short_of("storm", 0.02, 1.0, promised=True) is None:
        budget.withdraw("storm", 0.02, 1.0)
        spent += 1
    assert spent == 11, "what it deposited, and a second of the floor"
    assert budget.short_of("storm", 0.02, 1.0, promised=True) == "all"
    assert budget.left("storm", 1.0, promised=True) < 0.02
    assert budget.short_of("calm", 0.02, 1.0, promised=True) is None


def test_a_promise_is_held_for_its_client_until_shortly_after_its_slot() -> None:
    budget = drained()
    budget.deposit("", 0.05, 0.0)
    budget.hold(b"f", 0.04, slot=3.0, now=0.0)
    assert budget.short_of("", 0.04, 0.1, promised=False) == "all"
    assert budget.left("", 0.1, promised=False) < 0.04 <= budget.left("", 0.1, promised=True)
    assert budget.short_of("", 0.04, 0.1, promised=True) is None
    assert budget.release(b"f", 3.5)
    assert not budget.release(b"f", 3.5), "only once"
    assert budget.held == 0.0
    budget.hold(b"g", 0.04, slot=4.0, now=3.5)
    assert not budget.release(b"other", 6.1)
    assert budget.held == 0.0, "lapsed two seconds after its slot"
    assert not budget.release(b"g", 6.1)


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.booleans(), st.floats(0.001, 0.02)), min_size=1, max_size=120
    )
)
def test_no_window_spends_more_than_it_earned_plus_floor_and_reserve(
    events: list[tuple[float, bool, float]],
) -> None:
    account, now = Account(0.0), 0.0
    deposits: list[tuple[float, float]] = []
    spent: list[tuple[float, float]] = []
    for pause, deposit, amount in events:
        now += pause
        if deposit:
            account.deposit(amount, now)
            deposits.append((now, amount))
        elif account.covers(amount, amount, now, MEAN):
            account.withdraw(amount, amount, now, MEAN)
            spent.append((now, amount))
        assert account.balance(now, MEAN) >= 0.0
    for first, (begin, _) in enumerate(spent):
        for end, _ in spent[first:]:
            used = sum(amount for at, amount in spent if begin <= at <= end)
            earned = sum(amount for at, amount in deposits if begin - TTL <= at <= end)
            assert used <= earned + (end - begin) * MEAN + TTL * MEAN + 1e-9
