"""A whole service in virtual time for the console: played traffic, engine and all of control."""

from pathlib import Path

import msgspec
from tests.admission.rig import Door
from tests.admission.virtual_engine import Service, VirtualEngine
from tests.fakes import tiny_card

from surgetank.admission.api import Ask
from surgetank.admission.gate import GateConfig
from surgetank.admission.outcome import Refused
from surgetank.admission.policies.canary import CanaryConfig
from surgetank.admission.work import Work
from surgetank.control.actions import Actions
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.console.camera import Camera
from surgetank.control.console.frame import Frame
from surgetank.control.drain import Drain
from surgetank.control.insight.service import Insight
from surgetank.control.inspection import Inspection
from surgetank.control.journal import Entry, Journal
from surgetank.control.loop import ControlLoop
from surgetank.control.trials import Trials
from surgetank.control.views import ControlOut, StatusOut, status_out
from surgetank.engine.api import ModelCard, SamplingParams, StepOutput
from surgetank.telemetry.family import Counter
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import Priority

CARD = tiny_card(name="tiny-135m", max_num_seqs=16, kv_blocks=192)
LOOK = 0.25  # seconds between two passes of control
PATIENCE = 0.5  # seconds


class _Engine(VirtualEngine):
    """Its records tell the pool and the slots, as an engine's do."""

    def _record(self, read: int, decoding: int, resident: int, seconds: float) -> StepRecord:
        record = super()._record(read, decoding, resident, seconds)
        filled = min(CARD.max_num_seqs, len(self._work))
        used = min(CARD.kv_blocks, 4 * len(self._work) + record.kv_used)
        cached = min(24, CARD.kv_blocks - used)
        return msgspec.structs.replace(
            record,
            slots_filled=filled,
            slots_no_work=CARD.max_num_seqs - filled,
            kv_used=used,
            kv_cached=cached,
            kv_free=CARD.kv_blocks - used - cached,
        )


class Visitor(Door):
    """A client that gives up after PATIENCE seconds, and comes again at once, so often."""

    def __init__(self, stage: "Stage", tries: int) -> None:
        super().__init__()
        self._stage = stage
        self._left = tries
        self._prompt = [2 + stage.visitors // 90 % 90, 2 + stage.visitors % 90, *[1] * 48]
        stage.visitors += 1
        self._try()

    def _try(self) -> None:
        self._left -= 1
        desk = self._stage.desk
        ticket = desk.arrive("http", ())
        ticket.stream = True
        try:
            served = desk.find("default")
        except Refused as refused:
            desk.refuse(ticket, refused.refusal)
            self._again()
            return
        ask = Ask(self._prompt, SamplingParams(max_tokens=20), 1)
        try:
            call = desk.submit(ticket, served, ask, Door())
        except Refused:
            self._again()
            return
        self._stage.timer.call_later(PATIENCE, lambda: self._give_up(call))

    def _give_up(self, call: Work) -> None:
        if call.ticket.outcome is None:
            call.cancel()
            self._again()

    def _again(self) -> None:
        if self._left:
            self._stage.timer.call_later(0.05, self._try)


class Stage(Service):
    """Implements api.Service. play() lets a second pass and takes the console's frame."""

    def __init__(self) -> None:
        super().__init__(card=CARD, engine=_Engine)
        self.visitors = 0
        self.engine.watcher = self
        self.journal = Journal(self.clock, None)
        self.drain = Drain(self.clock, self.journal, self._turn)
        self.inspection = Inspection(Path("/nowhere/engine.sock"))
        self.backend_drains = BackendDrains(
            self.clock,
            self.journal,
            self.desk.engines.names,
            lambda: self.desk.snapshot().engines,
            self._turn_backend,
        )
        self.insight = Insight(
            desk=self.desk,
            drains=self.backend_drains,
            recorder=self.recorder,
            clock=self.clock,
        )
        self.actions = Actions(
            self.clock, self.desk.limits, self.journal, self.drain, self.insight.object_to
        )
        loop = ControlLoop(  # the console shows nothing of it
            clock=self.clock,
            config=GateConfig(),
            policies={},
            limits=self.desk.limits,
            journal=self.journal,
            drain=self.drain,
            read=self.insight.history.read,
            apply=self.engine.apply,
            policy_errors=Counter(),
        )
        self.trials = Trials(
            clock=self.clock,
            stage=self.desk.policies,
            loop=loop,
            journal=self.journal,
            registry=self.recorder.registry,
            config=CanaryConfig(),
        )
        self.camera = Camera(
            clock=self.clock,
            looks=self.insight.history.looks,
            recent=self.desk.recent,
            journal=self.journal,
            drain=self.drain,
            drains=self.backend_drains,
        )
        self.feed = self.camera.feed
        self._look()

    def play(self, seconds: int = 1, rate: float = 0.0, tries: int = 1) -> Frame:
        """Visitors come at `rate`, each of them up to `tries` times."""
        frame = None
        for _ in range(seconds):
            if rate:
                for _ in self.arrivals(rate, 1.0):
                    Visitor(self, tries)
            else:
                self.timer.advance(1.0)
            frame = self.camera.take()
        if frame is None:
            raise ValueError("seconds is 0; allowed: 1 or more")
        return frame

    def calm(self, seconds: int) -> Frame:
        """Patient traffic of several classes, within what the engine can do."""
        frame = self.camera.take()
        for _ in range(seconds):
            for number, _ in enumerate(self.arrivals(12.0, 1.0)):
                self.send(priority=Priority(number % 3))
            frame = self.camera.take()
        return frame

    def freeze(self, seconds: float) -> None:
        """The engine makes no step for so long."""
        self.engine.frozen_until = self.clock.monotonic() + seconds

    def die(self) -> None:
        """The engine is gone."""
        self.engine.card = None
        self.desk.engines.watchers[0].on_down("gone")

    # As a watcher: the desk and the console's meter both hear.

    def on_step(self, output: StepOutput) -> None:
        self.camera.meter.on_step(output)
        self.desk.engines.watchers[0].on_step(output)

    def on_up(self, card: ModelCard) -> None:
        self.desk.engines.watchers[0].on_up(card)

    def on_down(self, detail: str) -> None:
        self.desk.engines.watchers[0].on_down(detail)

    # As the admin API's service.

    def status(self) -> StatusOut:
        return status_out(
            desk=self.desk.snapshot(),
            totals=self.recorder.totals(),
            drain=self.drain,
            control=ControlOut(ticks=1, policy_errors=0, journal_failures=0),
            listeners={},
            uptime=self.clock.monotonic(),
        )

    def entries(self, last: int) -> list[Entry]:
        return self.journal.recent(last)

    def _look(self) -> None:
        now = self.clock.monotonic()
        self.desk.limits.expire(now)
        self.drain.expire(now)
        self.insight.history.read()
        self.timer.call_later(LOOK, self._look)

    def _turn_backend(self, name: str, by: str | None) -> None:
        if by is None:
            self.desk.engines.undrain(name)
        else:
            self.desk.engines.drain(name, by)

    def _turn(self, on: bool) -> None:
        self.desk.draining = on
