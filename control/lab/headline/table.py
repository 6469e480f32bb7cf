"""All headline experiments, and how they are run."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from surgetank.control.lab.headline.experiment import Experiment, Result, UnknownExperiment, judge
from surgetank.control.lab.headline.fairness import FAIRNESS
from surgetank.control.lab.headline.goodput import GOODPUT
from surgetank.control.lab.headline.mix_shift import MIX_SHIFT
from surgetank.control.lab.headline.one_slot import ONE_SLOT
from surgetank.control.lab.headline.preemption import PREEMPTION
from surgetank.control.lab.headline.priority import PRIORITY
from surgetank.control.lab.headline.refusals import REFUSALS
from surgetank.control.lab.headline.stall import STALL
from surgetank.control.lab.headline.step_budget import STEP_BUDGET

EXPERIMENTS: dict[str, Experiment] = {
    "goodput": GOODPUT,
    "stall": STALL,
    "mix-shift": MIX_SHIFT,
    "priority": PRIORITY,
    "fairness": FAIRNESS,
    "refusals": REFUSALS,
    "step-budget": STEP_BUDGET,
    "preemption": PREEMPTION,
    "one-slot": ONE_SLOT,
}


def run_all(seeds: Sequence[int], only: Sequence[str] = (), jobs: int = 1) -> Iterator[Result]:
    """Each experiment, or those of `only`, over all seeds. Raises UnknownExperiment."""
    for name in only:
        if name not in EXPERIMENTS:
            known = ", ".join(EXPERIMENTS)
            raise UnknownExperiment(f"no experiment {name!r}; there are: {known}")
    return _results([name for name in EXPERIMENTS if not only or name in only], seeds, jobs)


def _results(names: Sequence[str], seeds: Sequence[int], jobs: int) -> Iterator[Result]:
    if jobs == 1:
        for name in names:
            yield judge(EXPERIMENTS[name], [measure(name, seed) for seed in seeds])
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        measured = {name: pool.map(partial(measure, name), seeds) for name in names}
        for name in names:
            yield judge(EXPERIMENTS[name], list(measured[name]))


def measure(name: str, seed: int) -> dict[str, float]:
    """One experiment's values with one seed."""
    return dict(EXPERIMENTS[name].measure(seed))
