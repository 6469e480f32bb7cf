"""Preemption's waste budget: when too much is computed twice, less KV memory is promised.

    waste = tokens preempted / tokens computed, over 10 s, or since the last cut if that is less

A preempted sequence is computed again from its first token, so waste is capacity lost to promises
that were too optimistic. Above 10 % the promised share of the pool is cut by a tenth, once a second
at most; below 5 % it grows back by a hundredth a second: down fast, up slowly, never below half of
what is configured. Each cut is judged by what happens after it: when the same tokens could cut
again, one bad second cut seven times, and in the lab's tight pool a seventh of the goodput went.
"""

from dataclasses import dataclass

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.policies.policy import Policy, Wanted

WINDOW = 10.0  # seconds
PERIOD = 1.0  # seconds between two corrections
MOST = 0.10
CALM = 0.05
CUT = 0.9
GROW = 0.01
LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Budget:
    """`factor` of the configured share; looks are (at, computed, preempted), oldest first."""

    factor: float = 1.0
    looks: tuple[tuple[float, int, int], ...] = ()


def step(state: Budget, config: GateConfig, snapshot: DeskSnapshot) -> tuple[Budget, Wanted]:
    """One pass of the control loop."""
    now = snapshot.at
    if not state.looks or now - state.looks[-1][0] >= PERIOD:
        look = (now, snapshot.flow.computed, snapshot.flow.preempted)
        looks = (*(each for each in state.looks if now - each[0] <= WINDOW), look)
        factor = _corrected(state.factor, looks)
        state = Budget(factor, (look,) if factor < state.factor else looks)
    factor = round(state.factor, 2)
    return state, {
        Limit.KV_RESERVE: max(0.05, factor * config.kv_reserve),
        Limit.KV_RESERVE_LOW: max(0.05, factor * config.kv_reserve_low),
    }


def _corrected(factor: float, looks: tuple[tuple[float, int, int], ...]) -> float:
    computed, preempted = (looks[-1][each] - looks[0][each] for each in (1, 2))
    if computed and preempted > MOST * computed:
        return max(LEAST, factor * CUT)
    if preempted <= CALM * computed:
        return min(1.0, factor + GROW)
    return factor


waste = Policy(Budget(), step, "less KV memory promised while too much is computed twice")
