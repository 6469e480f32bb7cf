"""Retries multiply and budgets cap; sizes have units."""

import math

import pytest

from surgetank.control.capacity.gpus import gpu_memory, holding
from surgetank.control.capacity.load import Load
from surgetank.control.capacity.memory import judge
from surgetank.control.capacity.units import CapacityError, both, parse_size


@pytest.mark.parametrize(
    ("retries", "budget", "factor"),
    [
        ((), None, 1),
        ((3,), None, 4),  # three retries are four attempts
        ((2, 2, 4), None, 45),  # layers multiply
        ((3, 3), 0.1, 1.1),
        ((0,), 0.1, 1),
        ((3,), 10.0, 4),  # a budget never adds attempts
    ],
)
def test_attempts(retries: tuple[int, ...], budget: float | None, factor: float) -> None:
    load = Load(20, retries, budget)
    assert load.factor == pytest.approx(factor)
    assert load.attempts_per_second == pytest.approx(20 * factor)
    assert load.unbounded == math.prod(count + 1 for count in retries)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * 2**30),
        ("80GB", 80 * 10**9),
        ("0.5 GiB", 2**29),
        ("512mib", 2**29),
        ("1TB", 10**12),
    ],
)
def test_a_size_is_read_exactly(text: str, size: int) -> None:
    assert parse_size(text, "gpu_memory") == size


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("80", r"'80' without a unit; write 80GiB \(2\^30 bytes\) or 80GB"),
        ("-5GiB", "more than 0"),
        ("0GB", "more than 0"),
        ("80Gib/s", "a size such as"),
        ("80Go", "allowed units: B, KiB"),
        ("9999999TiB", "at most 1024TiB"),
        ("", "a size such as"),
    ],
)
def test_a_size_that_is_not_one_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(CapacityError, match=sentence):
        parse_size(text, "gpu_memory")


def test_both_units_are_shown() -> None:
    assert both(80 * 10**9) == "74.51 GiB (80.00 GB)"


def test_a_gpu_is_found_by_name_or_by_what_it_holds() -> None:
    assert gpu_memory("h100 80gb") == gpu_memory("H100-80GB")
    with pytest.raises(CapacityError, match="did you mean H200"):
        gpu_memory("H20")
    assert holding(140 * 2**30, 0.8) == ["B200", "MI300X"]
    assert holding(2**50, 0.8) == []


def test_the_verdict_is_against_80_percent() -> None:
    assert judge(800, 1000, 0.9) == "fits"
    assert judge(801, 1000, 0.9) == "tight"
    assert judge(901, 1000, 0.9) == "does not fit"
    assert judge(750, 1000, 0.7) == "does not fit"
