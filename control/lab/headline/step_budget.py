"""A burst of long prompts and an engine with room for them all in one step.

With a hard-coded queue bound before it and no limit on a step's time, the step time explodes and
with it everyone's time per token: that the run shows so is a bar of its own, or the experiment
would prove nothing.
"""

import numpy as np

from surgetank.control.lab.headline.experiment import Bar, Experiment
from surgetank.control.lab.headline.ground import MIX, SLO, offered, scenario
from surgetank.control.lab.inputs import merged
from surgetank.control.lab.judge import Judged, judge, quantile
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.world import play

_STUFFING = EngineSpec(max_num_seqs=256, max_batch_tokens=65_536, kv_blocks=65_536)
_LONG = MIX.model_copy(update={"prompt_median": 6000.0, "prompt_sigma": 0.4, "prompt_most": 16_384})
_WARM, _BURST, _BURST_END, _END = 3.0, 10.0, 20.0, 30.0
_WINDOW = 1.0  # seconds
_ENOUGH = 5  # calls that make a window


def _measure(seed: int) -> dict[str, float]:
    steady = offered(_STUFFING, MIX, 0.4, 0.0, _END, f"{seed}:steady")
    burst = offered(_STUFFING, _LONG, 3.0, _BURST, _BURST_END, f"{seed}:burst")
    items = merged(steady, burst)
    ours = scenario(seed, _STUFFING)
    unbounded = _STUFFING.model_copy(update={"tpot_target": 0.0})
    none = ours.model_copy(update={"policy": "static-queue", "engine": unbounded})
    calls = judge(play(ours, items))
    return {
        "worst_window_tpot_p99_of_target": _worst(calls),
        "the_same_without": _worst(judge(play(none, items))),
        # A gate that refused everything would keep TPOT, too.
        "served_before_the_burst": calls.success(calls.between(_WARM, _BURST)),
    }


def _worst(calls: Judged) -> float:
    """The largest p99 of TPOT, over windows of calls that ended in them, of the target."""
    windows = [
        calls.tpot[calls.ok & (calls.ended >= begin) & (calls.ended < begin + _WINDOW)]
        for begin in np.arange(_WARM, _END, _WINDOW)
    ]
    latest = [quantile(each, 0.99) for each in windows if len(each) >= _ENOUGH]
    return float(np.max(latest)) / SLO.tpot  # nan where a window has no times


STEP_BUDGET = Experiment(
    "step budget",
    (
        Bar("worst_window_tpot_p99_of_target", 1.0),
        Bar("the_same_without", 1.5, floor=True),
        Bar("served_before_the_burst", 0.95, floor=True),
    ),
    _measure,
)
