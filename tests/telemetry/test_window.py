"""Sliding windows give the numbers that a person would work out on paper."""

import pytest

from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.window import QuantileWindow, RateWindow


def test_a_rate_is_over_the_time_that_has_passed() -> None:
    clock = ManualClock(5.0)
    window = RateWindow(clock, span=10.0, slots=10)
    assert window.rate() is None
    for _ in range(4):
        clock.advance(0.5)
        window.add(3)
    assert window.total() == 12
    assert window.rate() == pytest.approx(6.0)


def test_a_steady_rate_stays_steady() -> None:
    clock = ManualClock()
    window = RateWindow(clock, span=10.0, slots=20)
    for _ in range(1000):
        clock.advance(0.125)
        window.add()
    clock.advance(0.125)
    assert window.rate() == pytest.approx(8.0, rel=0.02)


def test_old_amounts_leave() -> None:
    clock = ManualClock()
    window = RateWindow(clock, span=10.0, slots=10)
    window.add(100)
    clock.advance(9.5)
    assert window.total() == 100
    window.add(1)
    clock.advance(1.0)
    assert window.total() == 1
    clock.advance(1000.0)
    assert window.total() == 0
    assert window.rate() == 0.0


def test_quantiles_interpolate_between_ranks() -> None:
    clock = ManualClock()
    window = QuantileWindow(clock, span=60.0)
    assert window.quantile(0.5) is None
    for value in (40.0, 10.0, 30.0, 20.0, 50.0):
        window.add(value)
    assert [window.quantile(q) for q in (0.0, 0.25, 0.5, 0.9, 1.0)] == [10, 20, 30, 46, 50]


def test_old_values_leave_and_the_newest_are_kept() -> None:
    clock = ManualClock()
    window = QuantileWindow(clock, span=10.0, capacity=3)
    window.add(1.0)
    clock.advance(8.0)
    window.add(2.0)
    clock.advance(4.0)
    assert window.count() == 1
    assert window.quantile(0.5) == 2.0
    for value in (3.0, 4.0, 5.0):
        window.add(value)
    assert window.count() == 3
    assert window.quantile(0.0) == 3.0


def test_impossible_windows_are_refused() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="span is 0"):
        RateWindow(clock, span=0)
    with pytest.raises(ValueError, match="capacity is 0"):
        QuantileWindow(clock, span=1, capacity=0)
    with pytest.raises(ValueError, match=r"q is 1\.5; allowed: 0 to 1"):
        QuantileWindow(clock, span=1).quantile(1.5)
