"""What a class leaves to the classes above it: free slots when they come, and short steps.

A full engine makes even the highest class wait for some request to end, C/mu seconds on average,
the turnover of a slot. Of the classes above, m = lambda_h / mu requests of mean cost arrive per
turnover (lambda_h in engine-seconds per second, as served lately), by Poisson with deviation
sqrt(m). So a class leaves

    h = ceil(m + 2.33 * sqrt(m))      and nothing while m < .01

free: enough 99 times in 100. It costs h slots of throughput, and only while there are higher
classes to profit from it.

A free slot is not all. Who takes it waits for the end of the step in progress, and each chunk of
its prompt shares a step with all that decode. Both grow with the mean step, to which each running
sequence adds x = a*p/o + b + c*(p + o/2) seconds (binding.py). So while higher classes are served,
the low ones (batch and sheddable: throughput, that nobody waits for) are dispatched only while

    B <= f * a * chunk / x

that is, while all that runs adds no more than f of a full chunk to a step. f trades the one for the
other. In the lab critical calls at .3 of capacity, beside five and ten times the capacity in batch
work, had a TTFT p99 of 1.2 to 1.45 times that of an otherwise empty engine without this law, of 1.1
to 1.2 with f = .3, and both classes together got a sixth less done; with f = 1/4, 1.1 to 1.15 and
a quarter less.
"""

import math

_Z = 2.33  # the normal distribution's 99 % quantile
_NEGLIGIBLE = 0.01


def headroom(above_rate: float, drain: float) -> int:
    """h for a class, given what those above it take; both in engine-seconds per second."""
    if not noticed(above_rate, drain):
        return 0
    mean = above_rate / drain
    return math.ceil(mean + _Z * math.sqrt(mean))


def noticed(above_rate: float, drain: float) -> bool:
    """Whether there are higher classes to speak of."""
    return above_rate >= _NEGLIGIBLE * drain


def low_batch(fill: float, chunk_seconds: float, each: float) -> float:
    """B for low classes below others; `fill` is f, `chunk_seconds` a*chunk, `each` x."""
    return fill * chunk_seconds / each if each else math.inf
