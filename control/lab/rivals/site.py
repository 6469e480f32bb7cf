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
    """One sidecar's place before its engine. `answer_length` is the future: for the oracle only.

    `quotas` are what it shares with the others, if anything: only ours keeps to them.
    """

    timeline: Timeline
    port: Port
    rng: random.Random
    spec: EngineSpec
    gate: GateConfig
    slo: SloTargets
    answer_length: Callable[[GenerateRequest], int]
    quotas: Quotas | None = None
