"""What the experiments share: an engine, a mix of calls, and load as a share of capacity."""

import random

from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour
from surgetank.control.lab.inputs import Item, Mix, synthetic
from surgetank.control.lab.steptime import EngineSpec, StepModel
from surgetank.control.lab.world import Scenario
from surgetank.telemetry.slo import SloTargets

ENGINE = EngineSpec()
# About three times as fast: more calls in each second, for what is judged second by second.
FAST = EngineSpec(model=StepModel(t0=2e-3, a=8e-6, b=15e-6, c=12e-9))
MIX = Mix()
SLO = SloTargets()
STORM = BEHAVIOURS["immediate-3"]
OBEYING = Behaviour(name="immediate-3-obeying", retries=3, obeys=True)


def capacity(engine: EngineSpec, mix: Mix) -> float:
    """Calls per second that the engine can serve, by its step model."""
    return engine.capacity(*mix.means(), SLO.tpot)


def offered(
    engine: EngineSpec, mix: Mix, load: float, begin: float, end: float, seed: str
) -> list[Item]:
    """Calls in [begin, end) at `load` times the capacity; equal seeds, equal calls."""
    return synthetic(mix, load * capacity(engine, mix), begin, end, random.Random(seed))


def scenario(
    seed: int, engine: EngineSpec = ENGINE, client: Behaviour = BEHAVIOURS["no-retry"]
) -> Scenario:
    """Ours before that engine, with one kind of clients."""
    return Scenario(engine=engine, slo=SLO, clients=((client, 1.0),), seed=seed)
