"""What arrives at the engine once retries are counted.

A layer with R retries makes R + 1 attempts of each request; layers multiply, for each retries the
attempts of the one above it (Site Reliability Engineering, 2016, chapter 22). A retry budget of
beta lets retries be at most beta times the first attempts, so the factor is at most 1 + beta.
By Little's law, N sequences at rate lambda leave each N / lambda seconds in the engine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """Offered load when every attempt fails: the storm that retries can make of it."""

    rps: float  # first attempts per second
    retries: tuple[int, ...]  # per layer, outermost first
    budget: float | None  # beta; None = no budget

    @property
    def unbounded(self) -> int:
        """Attempts per request with no budget."""
        return attempts(self.retries)

    @property
    def factor(self) -> float:
        """Attempts per request that reach the engine."""
        if self.budget is None:
            return self.unbounded
        return min(self.unbounded, 1 + self.budget)

    @property
    def attempts_per_second(self) -> float:
        return self.rps * self.factor


def attempts(retries: Sequence[int]) -> int:
    """Attempts of one request at the bottom of layers that retry so often each."""
    return math.prod(count + 1 for count in retries)
