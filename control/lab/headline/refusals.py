"""Refusals against an oracle that knows the future, and promises that were not kept.

Clients neither retry nor time out, so both policies see the same calls. What the oracle serves in
time and ours does not, in engine-seconds, was refused wrongly (or let in and served too late, which
also counts as a promise not kept).
"""

from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.control.lab.headline.experiment import Bar, Experiment
from surgetank.control.lab.headline.ground import ENGINE, MIX, offered, scenario
from surgetank.control.lab.judge import judge, tries
from surgetank.control.lab.world import play

_LOADS = (0.7, 0.9, 1.2, 2.0, 4.0)
_WARM, _END = 5.0, 40.0


def _measure(seed: int) -> dict[str, float]:
    wrong, late, admitted = 0.0, 0.0, 0.0
    for load in _LOADS:
        items = offered(ENGINE, MIX, load, 0.0, _END, f"{seed}:{load}")
        base = scenario(seed, ENGINE, BEHAVIOURS["patient"])
        run = play(base, items)
        oracle = judge(play(base.model_copy(update={"policy": "oracle"}), items))
        wrong = max(wrong, 1 - judge(run).cohort(_WARM, _END) / oracle.cohort(_WARM, _END))
        attempts = tries(run)
        admitted += float(attempts.admitted.sum())
        late += float((attempts.admitted & ~attempts.good).sum())
    return {
        "wrongly_refused": wrong,
        "admitted_and_late": late / admitted,
    }


REFUSALS = Experiment(
    "refusals against an oracle",
    (Bar("wrongly_refused", 0.05), Bar("admitted_and_late", 0.02)),
    _measure,
)
