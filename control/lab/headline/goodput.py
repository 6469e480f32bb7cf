"""Overload with retrying clients: goodput holds, for short prompts and for long ones."""

import numpy as np

from surgetank.control.lab.headline.experiment import Bar, Experiment
from surgetank.control.lab.headline.ground import ENGINE, MIX, STORM, offered, scenario
from surgetank.control.lab.judge import judge
from surgetank.control.lab.summary import quartiles
from surgetank.control.lab.world import play

_LOADS = (0.5, 1.0, 2.0, 5.0, 10.0)
_WARM, _END = 5.0, 30.0


def _measure(seed: int) -> dict[str, float]:
    """Goodput in engine-seconds of good calls that ended, per second; and at the highest load
    the success of each quarter of the calls by size of prompt."""
    goodput: dict[float, float] = {}
    success: tuple[float, ...] = ()
    for load in _LOADS:
        items = offered(ENGINE, MIX, load, 0.0, _END, f"{seed}:{load}")
        calls = judge(play(scenario(seed, ENGINE, STORM), items))
        goodput[load] = calls.goodput(_WARM, _END)
        success = quartiles(calls)
    peak, least, most = max(goodput.values()), float(np.min(success)), float(np.max(success))
    return {
        "goodput_at_10x_of_peak": goodput[10.0] / peak,
        "quartile_success_max_over_min": most / least if least else float("inf"),
    }


GOODPUT = Experiment(
    "goodput under overload",
    (Bar("goodput_at_10x_of_peak", 0.95, floor=True), Bar("quartile_success_max_over_min", 1.5)),
    _measure,
)
