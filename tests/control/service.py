"""What control steers, in virtual time: a desk with a played engine, loop and actions."""

import random
from collections.abc import Mapping
from pathlib import Path

from tests.admission.rig import Rig

from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.policies.canary import CanaryConfig
from surgetank.control.actions import Actions
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.console.camera import Camera
from surgetank.control.drain import Drain
from surgetank.control.fleet.config import FleetConfig
from surgetank.control.fleet.directed import Directed
from surgetank.control.fleet.membership import Membership
from surgetank.control.insight.service import Insight
from surgetank.control.inspection import Inspection
from surgetank.control.journal import Entry, Journal
from surgetank.control.loop import ControlLoop
from surgetank.control.policies.plugins import offers
from surgetank.control.policies.policy import Policy
from surgetank.control.policies.table import POLICIES
from surgetank.control.trials import Trials
from surgetank.control.views import ControlOut, StatusOut, status_out
from surgetank.engine.api import Settings
from surgetank.telemetry.family import Counter


class PlayedService:
    """What the admin API shows and acts upon; `told` is what the engine was told."""

    def __init__(
        self,
        config: GateConfig | None = None,
        policies: Mapping[str, Policy] = POLICIES,
        leases: LeasesConfig | None = None,
        engines: int = 1,
    ) -> None:
        config = config or GateConfig()
        self.rig = Rig(config, leases=leases, engines=engines)
        self.clock = self.rig.clock
        self.limits = self.rig.desk.limits
        self.journal = Journal(self.clock, None)
        self.turns: list[bool] = []
        self.drain = Drain(self.clock, self.journal, self.turns.append)
        self.inspection = Inspection(Path("/nowhere/engine.sock"))
        self.backend_drains = BackendDrains(
            self.clock,
            self.journal,
            self.rig.desk.engines.names,
            lambda: self.rig.desk.snapshot().engines,
            self._turn_backend,
        )
        self.insight = Insight(
            desk=self.rig.desk,
            drains=self.backend_drains,
            recorder=self.rig.recorder,
            clock=self.clock,
        )
        self.told: list[Settings] = []
        self.policy_errors = Counter()
        self.loop = ControlLoop(
            clock=self.clock,
            config=config,
            policies=policies,
            limits=self.limits,
            journal=self.journal,
            drain=self.drain,
            read=self.insight.history.read,
            apply=self.told.append,
            policy_errors=self.policy_errors,
        )
        self.loop.on_tick(self.backend_drains.expire)
        self.trials = Trials(
            clock=self.clock,
            stage=self.rig.desk.policies,
            loop=self.loop,
            journal=self.journal,
            registry=self.rig.recorder.registry,
            config=CanaryConfig(),
            table=lambda: self.table,
        )
        self.table = offers()
        self.fleet = Membership(
            leases or LeasesConfig(),
            FleetConfig(),
            quotas=self.rig.quotas,
            clock=self.clock,
            rng=random.Random(1),
            limits=self.limits,
            journal=self.journal,
            drain=self.drain,
            policies=Directed(self.trials),
            registry=self.rig.recorder.registry,
            host="host",
        )
        self.actions = Actions(
            self.clock,
            self.limits,
            self.journal,
            self.drain,
            self.insight.object_to,
            self.fleet.others,
        )
        self.camera = Camera(
            clock=self.clock,
            looks=self.insight.history.looks,
            recent=self.rig.desk.recent,
            journal=self.journal,
            drain=self.drain,
            drains=self.backend_drains,
        )
        self.feed = self.camera.feed

    def _turn_backend(self, name: str, by: str | None) -> None:
        if by is None:
            self.rig.desk.engines.undrain(name)
        else:
            self.rig.desk.engines.drain(name, by)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, then tick."""
        self.rig.timer.advance(seconds)
        self.loop.tick()

    def status(self) -> StatusOut:
        return status_out(
            desk=self.rig.desk.snapshot(),
            totals=self.rig.recorder.totals(),
            drain=self.drain,
            control=ControlOut(
                ticks=self.loop.ticks,
                policy_errors=int(self.policy_errors.value),
                journal_failures=self.journal.failures,
            ),
            listeners={"http": "http://127.0.0.1:8400"},
            uptime=1.0,
            fleet=self.fleet.view(),
        )

    def entries(self, last: int) -> list[Entry]:
        return self.journal.recent(last)
