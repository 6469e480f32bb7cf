"""Least wait, and affinity with its two thresholds."""

import pytest

from surgetank.admission.engine_view import Rates
from surgetank.admission.routing.choice import preferred, wait_at
from surgetank.admission.routing.slow_start import warmth
from surgetank.admission.wait import reading, reading_shared
from surgetank.telemetry.stepmodel import StepModel

MODEL = StepModel(0.010, 1e-4, 1e-3, 1e-6)
RATES = Rates(MODEL, 1.0, 8.0, 256.0, 4, 1000, 0.02)
SLOW = Rates(StepModel(0.030, 3e-4, 3e-3, 3e-6), 1.0, 8.0, 256.0, 4, 1000, 0.02)
HALF = Rates(MODEL, 0.5, 8.0, 256.0, 4, 1000, 0.02)


def test_a_wait_is_reading_among_those_that_decode() -> None:
    # a*64 + (t0 + b*4 + c*1000)
    assert wait_at(RATES, 64, 4) == pytest.approx(0.0064 + 0.010 + 0.004 + 0.001)
    # 512 tokens are two chunks, and so two steps
    assert wait_at(RATES, 512, 0) == pytest.approx(0.0512 + 2 * 0.011)
    assert wait_at(SLOW, 64, 4) == pytest.approx(3 * wait_at(RATES, 64, 4))
    assert wait_at(HALF, 64, 4) == pytest.approx(2 * wait_at(RATES, 64, 4))


@pytest.mark.parametrize(
    ("waits", "crowded", "chosen", "passed"),
    [
        ([0.10, 0.10, 0.10], [False] * 3, 2, set()),
        ([0.10, 0.10, 0.15], [False] * 3, 2, set()),  # at the gain
        ([0.10, 0.10, 0.151], [False] * 3, 0, {2}),  # above it: the second choice
        ([0.10, 0.20, 0.30], [False] * 3, 0, {2}),
        ([0.20, 0.10, 0.30], [False] * 3, 1, {0, 2}),
        ([0.10, 0.10, 0.14], [False, False, True], 0, {2}),  # not yet back
        ([0.10, 0.10, 0.125], [False, False, True], 2, set()),  # back at half the gain
        ([0.10, 0.10, None], [False] * 3, 0, {2}),  # no room
        ([None, 9.0, None], [True] * 3, 1, {0, 2}),
    ],
)
def test_affinity_within_what_the_cache_saves(
    waits: list[float | None], crowded: list[bool], chosen: int, passed: set[int]
) -> None:
    assert preferred([2, 0, 1], waits, [0.05] * 3, crowded) == (chosen, passed)


@pytest.mark.parametrize(
    ("age", "slow_start", "share"), [(0, 30, 0.1), (15, 30, 0.55), (30, 30, 1.0), (0, 0, 1.0)]
)
def test_warmth_grows_from_a_tenth(age: float, slow_start: float, share: float) -> None:
    assert warmth(age, slow_start) == pytest.approx(share)


def test_what_waits_is_read_by_whoever_is_done_first() -> None:
    apiece = reading(RATES, 1.0)  # seconds per token
    assert reading_shared([(RATES, 500)], 100) == pytest.approx(600 * apiece)
    assert reading_shared([(RATES, 500), (RATES, 100)], 0) == pytest.approx(100 * apiece)
    assert reading_shared([(RATES, 500), (RATES, 100)], 300) == pytest.approx(400 * apiece)
    assert reading_shared([(RATES, 500), (RATES, 100)], 600) == pytest.approx(600 * apiece)
    assert reading_shared([(RATES, 0), (HALF, 0)], 300) == pytest.approx(200 * apiece)
    assert reading_shared([], 300) == 0.0
