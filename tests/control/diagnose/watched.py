"""A virtual service that is looked at twice a second, as the control loop looks at the real one."""

from tests.admission.virtual_engine import Service

from surgetank.admission.gate import GateConfig
from surgetank.control.diagnose.history import SPACING, History
from surgetank.control.diagnose.look import Eyes, count
from surgetank.control.diagnose.verdict import Diagnosis, Slo, Verdict, diagnose
from surgetank.engine.api import ModelCard


class Watched(Service):
    """Keeps each verdict with its time; on_tick may stand for the control loop."""

    def __init__(self, config: GateConfig | None = None, card: ModelCard | None = None) -> None:
        super().__init__(config, card)
        eyes = Eyes(self.desk.snapshot, self.desk.peek.held, lambda: count(self.recorder))
        self.history = History(eyes, self.recorder.queue_held)
        self.verdicts: list[tuple[float, Verdict]] = []
        self._tick()

    def diagnose(self, slo: Slo | None = None) -> Diagnosis:
        return diagnose(self.history.looks(), slo)

    def since(self, at: float) -> set[Verdict]:
        """Every verdict given from that instant on."""
        return {verdict for when, verdict in self.verdicts if when >= at}

    def _tick(self) -> None:
        self.desk.limits.expire(self.clock.monotonic())
        self.history.read()
        self.verdicts.append((self.clock.monotonic(), self.diagnose().verdict))
        self.timer.call_later(SPACING, self._tick)
