"""Evidence: bounded under no difference however often one looks, and quick where there is one."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgetank.admission.policies.evidence import Evidence, fewer, more, spent


def until(evidence: Evidence, chance: float, calls: int, rng: random.Random) -> tuple[float, int]:
    """The most that it ever reached, and after how many calls it reached 200."""
    most, at = 1.0, calls
    for number in range(calls):
        evidence.saw(candidate=rng.random() < chance, weight=min(1.0, rng.expovariate(4.0)))
        most = max(most, evidence.value)
        if most >= 200.0:
            return most, number
    return most, at


def test_equal_arms_reach_20_in_less_than_a_twentieth_of_the_canaries() -> None:
    rng = random.Random(1)
    fooled = sum(until(fewer(0.1), 0.1, 600, rng)[0] >= 20.0 for _ in range(200))
    assert fooled <= 10
    fooled = sum(until(more(0.1), 0.15 / 1.05, 600, rng)[0] >= 20.0 for _ in range(200))
    assert fooled <= 10


@pytest.mark.parametrize(("share", "at_most"), [(0.1, 1500), (0.5, 300)])
def test_half_the_goodput_is_seen_within_some_hundred_calls(share: float, at_most: int) -> None:
    rng = random.Random(2)
    chance = share * 0.5 / (share * 0.5 + 1 - share)  # of a good call being the candidate's
    needed = [until(fewer(share), chance, at_most, rng)[1] for _ in range(20)]
    assert max(needed) < at_most


def test_the_bet_is_the_likelihood_ratio_of_its_fall() -> None:
    share, fall = 0.2, 0.4
    bet = fall / (1 - share * fall)
    evidence = Evidence(share, [(bet, False)])
    evidence.saw(candidate=True)
    evidence.saw(candidate=False)
    worse = share * (1 - fall) / (1 - share * fall)  # the candidate's share if it falls
    ratio = worse / share * (1 - worse) / (1 - share)
    assert evidence.value == pytest.approx(ratio)


@given(
    share=st.floats(0.01, 0.5),
    weights=st.lists(st.floats(0.0, 1.0), max_size=8),
    late=st.booleans(),
)
def test_each_factor_is_1_in_expectation(share: float, weights: list[float], late: bool) -> None:
    null = share * 1.5 / (share * 1.5 + 1 - share) if late else share
    past = more(share) if late else fewer(share)
    for number, weight in enumerate(weights):
        past.saw(candidate=number % 3 == 0, weight=weight)
    before, after = past.value, 0.0
    for candidate, chance in ((True, null), (False, 1 - null)):
        next_one = more(share) if late else fewer(share)
        for number, weight in enumerate(weights):
            next_one.saw(candidate=number % 3 == 0, weight=weight)
        next_one.saw(candidate=candidate, weight=0.7)
        after += chance * next_one.value
    assert after == pytest.approx(before, rel=1e-9)


def test_windows_share_the_error_rate() -> None:
    assert spent(0.01, 1) == pytest.approx(0.01 * 6 / math.pi**2)
    assert sum(spent(0.01, window) for window in range(1, 20_000)) <= 0.01
