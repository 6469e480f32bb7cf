"""Figures out of samples. Pure."""

import math
from collections.abc import Sequence


def quantile(values: Sequence[float | None], q: float) -> float:
    """Linear between ranks, of those that are there; nan of none."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return math.nan
    at = q * (len(known) - 1)
    low = int(at)
    high = min(low + 1, len(known) - 1)
    if known[high] == known[low]:  # also where both are infinite
        return known[low]
    return known[low] + (known[high] - known[low]) * (at - low)


def mean(values: Sequence[float]) -> float:
    """nan of none."""
    return sum(values) / len(values) if values else math.nan
