"""An engine with one slot, whose callers retry by themselves: the gate answers no fewer than none.

Callers are openai clients as they ship, with two retries; half of them stream, half wait for the
whole answer, for twice or four times what one takes. Without a gate they queue in the engine, which
drops who leaves, and each comes back twice: in the calm that answers many. What the gate refuses it
has to make good by when it tells them to come back. Judged is the share of calls that is answered,
of what is answered without a gate: at each load and patience, in the calm and after a stall. At .7
of the capacity there is little to win, and a call more or less is chance: hence the bars below 1.
At .9 a quarter more is answered, at 1.1 half as much again. If the engine cannot stop what it has
begun, as llama-cpp-python's, without a gate the calm itself collapses.
"""

import random

from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour
from surgetank.control.lab.faults import Fault, FaultKind
from surgetank.control.lab.headline.experiment import Bar, Experiment, worst
from surgetank.control.lab.headline.ground import SLO, capacity
from surgetank.control.lab.inputs import Mix, synthetic
from surgetank.control.lab.judge import judge, share
from surgetank.control.lab.steptime import EngineSpec, StepModel
from surgetank.control.lab.world import Scenario, play

_ENGINE = EngineSpec(
    model=StepModel(t0=0.0128, a=1.5e-3, b=0.0, c=0.0),
    max_num_seqs=1,
    max_batch_tokens=512,
    noise=0.1,
)  # half a second for an answer
_MIX = Mix(prompt_median=60, prompt_sigma=0.05, output_median=32, output_sigma=0, max_tokens=32)
_LOADS = (0.7, 0.9, 1.1)
_TIMEOUTS = (1.0, 2.0)  # seconds
_WARM, _CALM, _AFTER = 10.0, 300.0, 120.0  # seconds
_STALL = Fault(kind=FaultKind.STALL, at=_CALM, seconds=10.0)
_BARS = (
    Bar("answered_of_ungated", 0.98, floor=True),
    Bar("answered_after_stall_of_ungated", 0.95, floor=True),
)


def _measure(seed: int) -> dict[str, float]:
    return worst(_BARS, [_cell(seed, load, each) for load in _LOADS for each in _TIMEOUTS])


def _cell(seed: int, load: float, timeout: float) -> dict[str, float]:
    ours, none = (_answered(policy, seed, load, timeout) for policy in ("ours", "none"))
    calm, after = (mine / theirs for mine, theirs in zip(ours, none, strict=True))
    return {"answered_of_ungated": calm, "answered_after_stall_of_ungated": after}


def _answered(policy: str, seed: int, load: float, timeout: float) -> tuple[float, float]:
    """Shares of the calls in the calm, and of those from the stall's end on."""
    end = _STALL.at + _STALL.seconds + _AFTER
    rate, rng = load * capacity(_ENGINE, _MIX), random.Random(f"{seed}:{load}")
    base = Scenario(
        policy=policy,
        engine=_ENGINE,
        slo=SLO,
        clients=tuple((each, 0.5) for each in _callers(timeout)),
        faults=(_STALL,),
        seed=seed,
    )
    calls = judge(play(base, synthetic(_MIX, rate, 0.0, end, rng)))
    calm = calls.between(_WARM, _STALL.at - 3 * timeout)
    after = calls.between(_STALL.at + _STALL.seconds, end - 3 * timeout)
    return share(calls.ok[calm]), share(calls.ok[after])


def _callers(timeout: float) -> tuple[Behaviour, Behaviour]:
    streaming = BEHAVIOURS["openai"].model_copy(update={"retries": 2, "timeout": timeout})
    return streaming, streaming.model_copy(update={"name": "openai-plain", "streams": False})


ONE_SLOT = Experiment("one slot against no gate", _BARS, _measure)
