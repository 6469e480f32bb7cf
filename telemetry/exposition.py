"""Readings as prometheus_client sees them: the one custom collector, for both text formats."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from surgetank.telemetry.family import HistogramReading
from surgetank.telemetry.registry import Reading


class ReadingCollector(Collector):
    """Hands readings, taken beforehand, to an encoder; a metric without samples is left out."""

    def __init__(self, readings: list[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        """One family per metric that has something to say."""
        return (_family(reading) for reading in self._readings if reading.samples)


def _family(reading: Reading) -> Metric:
    spec = reading.spec
    # The encoders want a counter's name without its suffix, and its samples' with it.
    base = spec.full_name.removesuffix("_total")
    family = Metric(base, spec.help, spec.type, spec.unit)
    for values, value in reading.samples.items():
        labels = dict(zip(spec.label_names, values))
        if isinstance(value, HistogramReading):
            for suffix, extra, number in _histogram_samples(value):
                family.add_sample(base + suffix, {**labels, **extra}, number)
        else:
            family.add_sample(spec.full_name, labels, value)
    return family


def _histogram_samples(reading: HistogramReading) -> Iterable[tuple[str, dict[str, str], float]]:
    """Cumulated buckets, count and sum; the count is the last bucket's, so they always agree."""
    cumulated = list(accumulate(reading.counts))
    for edge, count in zip(reading.edges, cumulated):
        yield "_bucket", {"le": repr(float(edge))}, count
    yield "_bucket", {"le": "+Inf"}, cumulated[-1]
    yield "_count", {}, cumulated[-1]
    yield "_sum", {}, reading.sum
