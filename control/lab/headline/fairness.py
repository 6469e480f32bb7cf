"""One tenant that asks for everything, and nine others: each gets its share, none of it is wasted.

The bound on the gap is that of the virtual token counter (Sheng et al., Fairness in Serving Large
Language Models, OSDI 2024, theorem 4.4): two tenants that both have work waiting differ in service
by at most 2 * max(w_p * L, w_q * M), with L the longest prompt and M the tokens of a full batch;
here the weights are engine-seconds per token, w_p = a and w_q = t0/B* + b.
"""

import numpy as np

from surgetank.control.lab.headline.experiment import Bar, Experiment
from surgetank.control.lab.headline.ground import ENGINE, MIX, SLO, offered, scenario
from surgetank.control.lab.inputs import Item, merged
from surgetank.control.lab.judge import Floats, Judged, judge
from surgetank.control.lab.world import Run, play

_OTHERS = 9
_HOG = 5.0  # of capacity
_WARM, _END = 5.0, 60.0


def _measure(seed: int) -> dict[str, float]:
    busy = play(scenario(seed), _calls(seed, each=0.15))
    idle_calls = _calls(seed, each=0.05)
    lent = judge(play(scenario(seed), idle_calls))
    alike = judge(play(scenario(seed), [item._replace(tenant="") for item in idle_calls]))
    service = _service(busy, judge(busy))
    return {
        "jain_index": jain(service[-1] - service[0]),
        "gap_of_bound": _gap(service) / _bound(),
        "throughput_of_unfair": _served(lent) / _served(alike),
    }


def jain(shares: Floats) -> float:
    """(sum x)^2 / (n * sum x^2): 1 when all are equal, 1/n when one has it all."""
    squares = float((shares**2).sum())
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else float("nan")


def _calls(seed: int, each: float) -> list[Item]:
    """The hog's, and those of the others at `each` of the capacity."""
    parts = [("hog", _HOG), *((f"tenant-{n}", each) for n in range(_OTHERS))]
    return merged(
        *(
            offered(
                ENGINE,
                MIX.model_copy(update={"tenant": name}),
                load,
                0.0,
                _END,
                f"{seed}:{name}:{load}",
            )
            for name, load in parts
        )
    )


def _service(run: Run, calls: Judged) -> Floats:
    """Engine-seconds that each tenant had received, second by second from _WARM to _END."""
    seconds = np.arange(_WARM, _END + 1.0)
    rows = []
    for number in range(len(run.log.tenants)):
        mine = calls.ok & (calls.tenant == number)
        order = np.argsort(calls.ended[mine], kind="stable")
        total = np.concatenate([[0.0], np.cumsum(calls.cost[mine][order])])
        rows.append(total[np.searchsorted(calls.ended[mine][order], seconds, side="right")])
    return np.array(rows).T


def _gap(service: Floats) -> float:
    """The widest difference between two tenants in what they got since the first second."""
    since = service - service[0]
    return float((since.max(axis=1) - since.min(axis=1)).max())


def _bound() -> float:
    prompt, output = MIX.means()
    batch = ENGINE.batch(prompt, output, SLO.tpot)
    longest = MIX.prompt_most + MIX.max_tokens
    held = min(ENGINE.kv_blocks * ENGINE.block_size, int(batch * longest))
    model = ENGINE.model
    return 2 * max(model.a * MIX.prompt_most, (model.t0 / batch + model.b) * held)


def _served(calls: Judged) -> float:
    return float(calls.cost[calls.ok & calls.between(_WARM, _END)].sum())


FAIRNESS = Experiment(
    "fairness between tenants",
    (
        Bar("jain_index", 0.98, floor=True),
        Bar("gap_of_bound", 1.0),
        Bar("throughput_of_unfair", 0.97, floor=True),
    ),
    _measure,
)
