"""Long answers on a KV pool that cannot hold them: little is computed twice, and nobody starves."""

import numpy as np

from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.control.lab.headline.experiment import Bar, Experiment, worst
from surgetank.control.lab.headline.ground import ENGINE, offered, scenario
from surgetank.control.lab.inputs import Mix
from surgetank.control.lab.judge import judge, tries
from surgetank.control.lab.world import play

_TIGHT = ENGINE.model_copy(update={"kv_blocks": 1200})
_MIX = Mix(prompt_median=200, output_median=300, output_sigma=1.0, max_tokens=2048)
_LOADS = (1.0, 2.0, 4.0)
_END, _TAIL = 60.0, 120.0
_BARS = (
    Bar("recomputed_of_computed", 0.1),
    Bar("preemptions_of_one_request", 3.0),
    Bar("longest_wait_seconds", 30.0),  # for a first token, or an end without one
    Bar("never_ended", 0.0),
)


def _measure(seed: int) -> dict[str, float]:
    return worst(_BARS, [_cell(seed, load) for load in _LOADS])


def _cell(seed: int, load: float) -> dict[str, float]:
    items = offered(_TIGHT, _MIX, load, 0.0, _END, f"{seed}:{load}")
    base = scenario(seed, _TIGHT, BEHAVIOURS["patient"])
    run = play(base.model_copy(update={"tail": _TAIL}), items)
    totals, calls, attempts = run.engines[0], judge(run), tries(run)
    kept = attempts.admitted
    first = np.where(np.isnan(attempts.ttft), attempts.ended - attempts.at, attempts.ttft)
    return {
        "recomputed_of_computed": totals.recomputed_tokens
        / (totals.prefill_tokens + totals.decode_tokens),
        "preemptions_of_one_request": float(totals.most_preempted),
        "longest_wait_seconds": float(first[kept].max()),
        "never_ended": float(np.isnan(calls.ended).sum()),
    }


PREEMPTION = Experiment("preemption", _BARS, _measure)
