"""Refusals against an oracle that knows the future, and promises that were not kept.

Clients neither retry nor time out, so both policies see the same calls. What the oracle serves in
time and ours does not, in engine-seconds, was refused wrongly (or let in and served too late, which
also counts as a promise not kept).

Late ones are counted twice: over whole runs and all loads together, and at the worst load of all
once the engine is known. Before its first steps the gate can predict nothing: at four times the
load the queue that fills in the first second is 2 to 4 % of all that is let in in 40 s.
"""

from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.control.lab.headline.experiment import Bar, Experiment
from surgetank.control.lab.headline.ground import ENGINE, MIX, offered, scenario
from surgetank.control.lab.judge import judge, tries
from surgetank.control.lab.world import play

_LOADS = (0.7, 0.9, 1.2, 2.0, 4.0)
_WARM, _END = 5.0, 40.0
_WRONGLY = Bar("wrongly_refused", 0.05)
_LATE = Bar("late_at_the_worst_load", 0.02)


def _measure(seed: int) -> dict[str, float]:
    wrong: list[float] = []
    warm: list[float] = []
    late, admitted = 0.0, 0.0
    for load in _LOADS:
        items = offered(ENGINE, MIX, load, 0.0, _END, f"{seed}:{load}")
        base = scenario(seed, ENGINE, BEHAVIOURS["patient"])
        run = play(base, items)
        oracle = judge(play(base.model_copy(update={"policy": "oracle"}), items))
        wrong.append(1 - judge(run).cohort(_WARM, _END) / oracle.cohort(_WARM, _END))
        attempts = tries(run)
        broken = attempts.admitted & ~attempts.good
        known = attempts.admitted & (attempts.at >= _WARM)
        warm.append(float((broken & known).sum() / known.sum()))
        admitted += float(attempts.admitted.sum())
        late += float(broken.sum())
    return {
        "wrongly_refused": _WRONGLY.worst(wrong),
        "admitted_and_late": late / admitted,
        "late_at_the_worst_load": _LATE.worst(warm),
    }


REFUSALS = Experiment(
    "refusals against an oracle",
    (_WRONGLY, Bar("admitted_and_late", 0.02), _LATE),
    _measure,
)
