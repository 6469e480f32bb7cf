"""What an engine keeps from the gate: a part of its KV pool, or what other sidecars have in it."""

import random

import numpy as np
import pytest

from surgetank.control.lab.inputs import Mix, synthetic
from surgetank.control.lab.judge import judge
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.world import Run, Scenario, play
from surgetank.telemetry.vocabulary import Priority

END = 20.0
MIX = Mix(prompt_median=300, prompt_sigma=0.8, output_median=60, max_tokens=256)
SPEC = EngineSpec(max_num_seqs=32)


def run(load: float, spec: EngineSpec = SPEC, sidecars: int = 1, *, high: float = 0.0) -> Run:
    """`load` times what the engine can serve; `high`: how much of that is critical, the rest then
    is batch."""
    rate, rng = load * spec.capacity(*MIX.means(), 0.1), random.Random(3)
    mixes = [(MIX, rate)]
    if high:
        classes = ((Priority.CRITICAL, high), (Priority.BATCH, 1.0 - high))
        mixes = [
            (MIX.model_copy(update={"priority": priority}), share * rate)
            for priority, share in classes
        ]
    items = sorted(
        (item for mix, each in mixes for item in synthetic(mix, each, 0.0, END, rng)),
        key=lambda item: item.at,
    )
    return play(Scenario(engine=spec, sidecars=sidecars, tail=10.0), items)


def goodput(played: Run) -> float:
    """Good answers, in engine-seconds per second."""
    return judge(played).goodput(0.0, END)


@pytest.mark.parametrize(("sidecars", "share"), [(2, 0.85), (3, 0.8)])
@pytest.mark.parametrize("load", [2.0, 4.0])
def test_sidecars_that_share_an_engine_leave_each_other_room(
    sidecars: int, share: float, load: float
) -> None:
    """Each for itself, two serve a tenth of what one does, and three less."""
    assert goodput(run(load, sidecars=sidecars)) > share * goodput(run(load))


def test_at_a_calm_load_sharing_costs_nothing() -> None:
    assert goodput(run(0.6, sidecars=3)) == pytest.approx(goodput(run(0.6)), rel=0.01)


def test_what_waits_for_kv_that_the_engine_holds_back_waits_at_the_gate() -> None:
    """Where classes count: in the engine's own line a critical call waited behind batch ones for a
    slot, .3 s in the median."""
    calls = judge(run(2.0, SPEC.model_copy(update={"kv_watermark": 0.06}), high=0.15))
    critical = calls.priority == Priority.CRITICAL
    assert calls.good[critical].mean() > 0.95
    assert np.nanmedian(calls.ttft[critical]) < 0.06
