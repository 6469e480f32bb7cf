"""Long answers on a KV pool that cannot hold them: little is computed twice, and nobody starves."""

import numpy as np

from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.control.lab.headline.experiment import Bar, Experiment
from surgetank.control.lab.headline.ground import ENGINE, offered, scenario
from surgetank.control.lab.inputs import Mix
from surgetank.control.lab.judge import tries
from surgetank.control.lab.world import play

_TIGHT = ENGINE.model_copy(update={"kv_blocks": 1200})
_MIX = Mix(prompt_median=200, output_median=300, output_sigma=1.0, max_tokens=2048)
_LOADS = (1.0, 2.0, 4.0)
_END = 60.0


def _measure(seed: int) -> dict[str, float]:
    wasted, most, waits = [], [], []
    for load in _LOADS:
        items = offered(_TIGHT, _MIX, load, 0.0, _END, f"{seed}:{load}")
        run = play(scenario(seed, _TIGHT, BEHAVIOURS["patient"]), items)
        totals = run.engines[0]
        computed = totals.prefill_tokens + totals.decode_tokens
        wasted.append(totals.recomputed_tokens / computed)
        most.append(float(totals.most_preempted))
        attempts = tries(run)
        waits.append(float(np.max((attempts.ended - attempts.at)[attempts.admitted])))
    return {
        "recomputed_of_computed": max(wasted),
        "preemptions_of_one_request": max(most),
        "longest_stay_seconds": max(waits),
    }


PREEMPTION = Experiment(
    "preemption",
    (
        Bar("recomputed_of_computed", 0.1),
        Bar("preemptions_of_one_request", 3.0),
        Bar("longest_stay_seconds", 120.0),
    ),
    _measure,
)
