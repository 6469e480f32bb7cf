"""A stall of ten seconds with clients that retry at once: it is over when the stall is.

Recovery is judged by cohorts of arrivals against the same calls without the stall: the earliest
moment after the stall's end from which on every window of calls has its goodput back. For this a
call must have its first token within the target of its arrival, refusals and waits included: those
who are told to come back later have not recovered.
"""

import math

import numpy as np

from surgetank.control.lab.behaviour import Behaviour
from surgetank.control.lab.faults import Fault, FaultKind
from surgetank.control.lab.headline.experiment import Bar, Experiment, worst
from surgetank.control.lab.headline.ground import (
    FAST,
    MIX,
    OBEYING,
    SLO,
    STORM,
    offered,
    scenario,
)
from surgetank.control.lab.judge import Judged, judge
from surgetank.control.lab.world import play

_LOADS = (0.8, 0.9, 0.95)
_STALL = Fault(kind=FaultKind.STALL, at=10.0, seconds=10.0)
_STALL_END = _STALL.at + _STALL.seconds
_END = 45.0
_JUDGED = 35.0  # so that no cohort gains from the calm after the last arrival
_WINDOW, _STEP = 2.0, 0.25  # seconds
_BACK = 0.95
_BARS = (Bar("recovery_seconds", 2.0), Bar("times_let_in", 1.1))


def _measure(seed: int) -> dict[str, float]:
    cells = [_cell(seed, load, client) for load in _LOADS for client in (STORM, OBEYING)]
    return worst(_BARS, cells)


def _cell(seed: int, load: float, client: Behaviour) -> dict[str, float]:
    """Seconds to recover; and of the calls that the stall touched and that were let in at all, how
    often they were."""
    items = offered(FAST, MIX, load, 0.0, _END, f"{seed}:{load}")
    calm = scenario(seed, FAST, client)
    usual = judge(play(calm, items))
    stormy = judge(play(calm.model_copy(update={"faults": (_STALL,)}), items))
    touched = stormy.between(_STALL.at - (client.timeout or 0.0), _STALL_END + 2 * _WINDOW)
    times = stormy.admitted[touched & (stormy.admitted > 0)]
    often = float(times.mean()) if len(times) else math.nan
    return {"recovery_seconds": recovery(usual, stormy), "times_let_in": often}


def recovery(usual: Judged, stormy: Judged) -> float:
    """Seconds from the stall's end until it is over for good; to the run's end when it never is."""
    begins = np.arange(_STALL_END, _JUDGED - _WINDOW + 1e-9, _STEP)
    bad = [begin for begin in begins if _prompt(stormy, begin) < _BACK * _prompt(usual, begin)]
    return float(bad[-1] + _STEP - _STALL_END) if bad else 0.0


def _prompt(calls: Judged, begin: float) -> float:
    """Engine-seconds of one window's calls that were good at once."""
    with np.errstate(invalid="ignore"):
        at_once = calls.good & (calls.heard - calls.arrived <= SLO.ttft)
    return float(calls.cost[at_once & calls.between(begin, begin + _WINDOW)].sum())


STALL = Experiment("stall and retry storm", _BARS, _measure)
