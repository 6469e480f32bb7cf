"""Every query of every panel finds numbers in a real Prometheus that watched the product."""

import math

import pytest
from tests.e2e.boards.asked import CANNOT_BE_HERE, Asked, every_query, filled
from tests.e2e.boards.conftest import Watched

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)]


def found(watched: Watched, asked: Asked) -> bool:
    """Whether it has a number at some time during the load."""
    series = watched.prometheus.query_range(filled(asked.expr), watched.start, watched.end, 2)
    numbers = [float(text) for each in series for _, text in each["values"]]
    return any(not math.isnan(number) for number in numbers)


def test_every_query_is_answered(watched: Watched) -> None:
    empty = [asked for asked in every_query() if not found(watched, asked)]
    excused = {metric for metric in CANNOT_BE_HERE for asked in empty if metric in asked.expr}
    missing = [asked.where for asked in empty if not asked.cannot_be_here]
    assert not missing, "\n".join(missing)
    assert excused == set(CANNOT_BE_HERE), "no longer empty"


def test_nothing_is_never_a_number(watched: Watched) -> None:
    """NaN is drawn as a hole or as a wrong zero, and compares with nothing."""
    for asked in every_query():
        series = watched.prometheus.query_range(filled(asked.expr), watched.start, watched.end, 2)
        values = [text for each in series for _, text in each["values"]]
        assert "NaN" not in values, asked.where
