"""Prompts grow fourfold and outputs threefold in the middle of a run: nothing has to be retuned.

The new capacity is what the oracle makes of the very same calls.
"""

import random

from surgetank.control.lab.headline.experiment import Bar, Experiment
from surgetank.control.lab.headline.ground import ENGINE, MIX, capacity, offered, scenario
from surgetank.control.lab.inputs import synthetic
from surgetank.control.lab.judge import judge
from surgetank.control.lab.world import play

_SHIFT, _SETTLED, _END = 20.0, 30.0, 90.0


def _measure(seed: int) -> dict[str, float]:
    before = offered(ENGINE, MIX, 1.0, 0.0, _SHIFT, f"{seed}:before")
    rate = capacity(ENGINE, MIX)  # as many calls as before, each several times as large
    rng = random.Random(f"{seed}:after")
    items = before + synthetic(MIX.scaled(4, 3), rate, _SHIFT, _END, rng)
    ours = scenario(seed)
    goodput = judge(play(ours, items)).goodput(_SETTLED, _END)
    oracle = judge(play(ours.model_copy(update={"policy": "oracle"}), items))
    return {"goodput_of_capacity": goodput / oracle.goodput(_SETTLED, _END)}


MIX_SHIFT = Experiment("mix shift", (Bar("goodput_of_capacity", 0.9, floor=True),), _measure)
