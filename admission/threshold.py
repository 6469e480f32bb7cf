"""The dynamic threshold: how long a request may wait, and how many may.

    admit iff W <= kappa * S        S = min(TTFT target, time left - own prefill - own decode)

S is the slack: what the class's target, or the caller's own deadline if that is tighter, leaves for
waiting. kappa < 1 keeps a reserve for what W cannot see: the request's own prefill against the
target, and the variance of the work ahead. In requests the threshold is

    Q_max = kappa * S * mu / C_mean

so it falls when the engine slows (mu) and when requests grow (C_mean), by itself: the hard-coded
number that it replaces does neither.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """kappa * S in seconds, and whether the caller's deadline is what made it so."""

    seconds: float
    by_deadline: bool


def threshold(kappa: float, target: float, slack: float) -> Threshold:
    """`target` is the class's TTFT; `slack` what the caller's deadline leaves, infinite without."""
    return Threshold(kappa * min(target, max(0.0, slack)), by_deadline=slack < target)


def queue_bound(seconds: float, drain: float, mean_cost: float) -> float:
    """Q_max: requests of mean cost (engine-seconds, > 0) whose wait is `seconds`."""
    return seconds * drain / mean_cost
