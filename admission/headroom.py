"""Slots that a class leaves free for the classes above it, so that these find one when they come.

A full engine makes even the highest class wait for some request to end, C/mu seconds on average,
the turnover of a slot. Of the classes above, m = lambda_h / mu requests of mean cost arrive per
turnover (lambda_h in engine-seconds per second, as served lately), by Poisson with deviation
sqrt(m). So a class leaves

    h = ceil(m + 2.33 * sqrt(m))      and nothing while m < .01

free: enough 99 times in 100. It costs h slots of throughput, and only while there are higher
classes to profit from it.
"""

import math

_Z = 2.33  # the normal distribution's 99 % quantile
_NEGLIGIBLE = 0.01


def headroom(above_rate: float, drain: float) -> int:
    """h for a class, given what those above it take; both in engine-seconds per second."""
    mean = above_rate / drain
    return 0 if mean < _NEGLIGIBLE else math.ceil(mean + _Z * math.sqrt(mean))
