"""A quantile read from the buckets is near enough to what was observed."""

import pytest

from surgetank.telemetry.buckets import DURATION, TTFT
from surgetank.telemetry.family import Histogram, HistogramReading


def histogram_quantile(q: float, reading: HistogramReading) -> float:
    """As PromQL computes it: linear inside the bucket that holds the rank."""
    rank = q * reading.count
    below, low = 0, 0.0
    for high, count in zip(reading.edges, reading.counts):
        if below + count >= rank:
            return low + (high - low) * (rank - below) / count
        below, low = below + count, high
    return reading.edges[-1]  # past all edges: the number is a lie, and it looks like a fact


def test_milliseconds_and_minutes_both_come_back() -> None:
    durations = Histogram(DURATION.edges)
    seen = [0.02, 75.0, 400.0]
    for value in seen:
        durations.observe(value)
    for position, value in enumerate(seen):
        middle = (position + 0.5) / len(seen)
        assert histogram_quantile(middle, durations.read()) == pytest.approx(value, rel=0.25)


def test_no_request_that_can_end_lies_past_the_edges() -> None:
    durations = Histogram(DURATION.edges)
    durations.observe(599.0)
    assert durations.read().counts[-1] == 0
    durations.observe(601.0)
    assert durations.read().counts[-1] == 1


def test_a_value_on_an_edge_is_inside_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    histogram.observe(0.25, times=4)
    reading = histogram.read()
    assert reading.counts == [6, 2, 1]
    assert reading.sum == pytest.approx(8.5)
    assert reading.count == 9


def test_a_target_becomes_an_edge_once() -> None:
    assert TTFT.including(0.33)[9:12] == (0.33, 0.4, 0.5)
    assert TTFT.including(0.5) == TTFT.edges
    assert len(TTFT.including(200)) == len(TTFT.edges) + 1
