"""One run: engines, sidecars and clients put together from a scenario, and played to the end."""

import random
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig
from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour
from surgetank.control.lab.clients import Crowd
from surgetank.control.lab.engine import SimulatedEngine, Totals
from surgetank.control.lab.entrance import Entrance
from surgetank.control.lab.faults import OF_REDIS, Fault, schedule
from surgetank.control.lab.inputs import Item
from surgetank.control.lab.log import Log
from surgetank.control.lab.rivals.site import Site
from surgetank.control.lab.rivals.table import build
from surgetank.control.lab.shared import SharedState
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.timeline import Timeline
from surgetank.telemetry.slo import SloTargets


class Scenario(BaseModel):
    """Everything of a run but its calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str = Field(default="ours", description="Who decides at the door.")
    engine: EngineSpec = Field(default_factory=EngineSpec, description="Each engine's sizes.")
    gate: GateConfig = Field(default_factory=GateConfig, description="The production gate's.")
    slo: SloTargets = Field(default_factory=SloTargets, description="What counts as good.")
    clients: tuple[tuple[Behaviour, float], ...] = Field(
        default=((BEHAVIOURS["no-retry"], 1.0),), min_length=1, description="Kinds and weights."
    )
    faults: tuple[Fault, ...] = Field(default=(), description="What goes wrong.")
    sidecars: int = Field(default=1, ge=1, le=64, description="Doors; a call takes one at random.")
    engines: Literal["shared", "own"] = Field(
        default="shared", description="One engine behind all sidecars, or one behind each."
    )
    behind: int = Field(
        default=1, ge=1, le=16, description="Engines in the place of each; above 1: policy ours."
    )
    leases: LeasesConfig | None = Field(
        default=None,
        description="Quotas and a retry budget that the sidecars share over one simulated Redis; "
        "unset: each for itself, without quotas.",
    )
    tail: float = Field(
        default=30.0, ge=0, le=3600, description="Seconds for what is open after the last arrival."
    )
    seed: int = Field(default=0, ge=0, description="Of everything that is drawn.")

    @model_validator(mode="after")
    def _there_is_a_redis_to_lose(self) -> "Scenario":
        if self.leases is None and any(fault.kind in OF_REDIS for fault in self.faults):
            raise ValueError("faults of redis need leases: without them nothing is shared")
        return self

    @model_validator(mode="after")
    def _rivals_know_one_engine(self) -> "Scenario":
        if self.behind > 1 and self.policy != "ours":
            raise ValueError(f"behind is {self.behind}; allowed with policy {self.policy}: 1")
        return self

    @property
    def groups(self) -> int:
        """Places for engines, each behind one sidecar or all."""
        return 1 if self.engines == "shared" else self.sidecars


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left behind."""

    scenario: Scenario
    log: Log
    engines: tuple[Totals, ...]
    duration: float  # virtual seconds from 0 to the last arrival


def play(scenario: Scenario, items: list[Item]) -> Run:
    """Play the calls. The same scenario and items give the same run, to the last bit."""
    world = _World(scenario)
    for engine in world.engines:
        engine.start()
    world.crowd.play(items)
    schedule(scenario.faults, world.engines, world.shared, world.timeline)
    duration = items[-1].at if items else 0.0
    world.timeline.run(duration + scenario.tail)
    world.crowd.close()
    if world.shared is not None:
        world.shared.close()
    return Run(scenario, world.crowd.log, tuple(e.totals for e in world.engines), duration)


class _World:
    """The parts, each with a source of randomness of its own, so that none disturbs another."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.timeline = Timeline()
        leases, count = scenario.leases, scenario.groups * scenario.behind
        self.shared = None if leases is None else SharedState(leases, self.timeline)
        self.engines = [self._engine(n) for n in range(count)]
        doors = [self._entrance(n) for n in range(scenario.sidecars)]
        self.crowd = Crowd(self.timeline, doors, scenario.clients, self._rng("clients"))

    def _rng(self, part: str) -> random.Random:
        return random.Random(f"{self._scenario.seed}:{part}")

    def _engine(self, number: int) -> SimulatedEngine:
        return SimulatedEngine(
            self._scenario.engine,
            self.timeline,
            lambda request: self.crowd.answer_length(request),
            self._rng(f"engine {number}"),
        )

    def _entrance(self, number: int) -> Entrance:
        scenario, shared = self._scenario, self.shared
        first = number % scenario.groups * scenario.behind
        return build(
            scenario.policy,
            Site(
                timeline=self.timeline,
                ports=tuple(
                    engine.connect() for engine in self.engines[first : first + scenario.behind]
                ),
                rng=self._rng(f"sidecar {number}"),
                spec=scenario.engine,
                gate=scenario.gate,
                slo=scenario.slo,
                answer_length=lambda request: self.crowd.answer_length(request),
                quotas=None if shared is None else shared.join(self._rng(f"leases {number}")),
            ),
        )
