"""What a policy finds at its place: an engine's port, the time, and what it is to keep to."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.quotas import Quotas
from surgetank.control.lab.port import Port
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.timeline import Timeline
from surgetank.engine.api import GenerateRequest
from surgetank.telemetry.slo import SloTargets


@dataclass(frozen=True, slots=True)
class Site:
    """One sidecar's place before its engines. `answer_length` is the future: for the oracle only.

    `quotas` are what it shares with the others, if anything: only ours keeps to them.
    """

    timeline: Timeline
    ports: tuple[Port, ...]  # more than one: only ours can use the others
    rng: random.Random
    spec: EngineSpec
    gate: GateConfig
    slo: SloTargets
    answer_length: Callable[[GenerateRequest], int]
    quotas: Quotas | None = None

    @property
    def port(self) -> Port:
        """The only engine's."""
        return self.ports[0]
