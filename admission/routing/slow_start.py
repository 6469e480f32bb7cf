"""How much of its slots an engine gets that has just come up or back: its caches are cold.

    share(t) = min(1, .1 + .9 * t / T)      t seconds after it came

What counts is how much warmer the others are: an engine gets share_i / max_j share_j of its slots.
So a whole service that starts at once gives all its engines all their slots.
"""

FIRST = 0.1


def warmth(age: float, slow_start: float) -> float:
    """share(t); 1 where there is no slow start."""
    if slow_start <= 0.0 or age >= slow_start:
        return 1.0
    return FIRST + (1.0 - FIRST) * max(0.0, age) / slow_start
