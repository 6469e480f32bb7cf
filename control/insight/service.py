"""What the running service can be asked beyond its status; each answer is read from live parts."""

from surgetank.admission.desk import AnyDesk
from surgetank.admission.limits import Limit
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.diagnose.facts import Facts
from surgetank.control.diagnose.history import History
from surgetank.control.diagnose.look import Eyes, count
from surgetank.control.diagnose.verdict import Slo, diagnose
from surgetank.control.explain import ExplainOut, explain
from surgetank.control.guards import objection
from surgetank.control.insight import read
from surgetank.control.insight.backend_shapes import BackendsOut
from surgetank.control.insight.backends import backends_out
from surgetank.control.insight.memory import memory_out
from surgetank.control.insight.shapes import (
    DiagnosisOut,
    MemoryOut,
    QueueOut,
    ReasonsOut,
    RetriesOut,
    TopOut,
)
from surgetank.control.slo import WINDOWS, SloReport, report
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.recorder import Recorder


class Insight:
    """Reads and changes nothing, except that `history` remembers. On the event loop's thread."""

    def __init__(
        self,
        *,
        desk: AnyDesk,
        drains: BackendDrains,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._drains = drains
        self._recorder = recorder
        self._clock = clock
        self._born = clock.monotonic()
        eyes = Eyes(desk.snapshot, desk.peek.held, lambda: count(recorder))
        self.history = History(eyes, recorder.queue_held)

    def diagnose(self, slo: Slo | None) -> DiagnosisOut:
        """The verdict, its evidence and the next command."""
        return read.diagnosis_out(diagnose(self.history.looks(), slo))

    def object_to(self, limit: Limit, before: float, after: float) -> str | None:
        """Why that change would make things worse now; None: it would not."""
        return objection(limit, before, after, Facts.of(self.history.looks()))

    def explain(self, request_id: str) -> ExplainOut:
        """One request's story; raises UnknownRequest."""
        return explain(
            request_id,
            live=self._desk.peek.live(),
            ended=self._desk.recent(),
            what_if=self._desk.peek.what_if,
            now=self._clock.monotonic(),
        )

    def top(self) -> TopOut:
        """Everything that moves, on one page."""
        looks = self.history.looks()
        return read.top_out(looks, diagnose(looks), self._clock.monotonic() - self._born)

    def queue(self, most: int, *, running: bool) -> QueueOut:
        """Who waits (and with `running` who is in the engine), longest first."""
        return read.queue_out(self._desk.snapshot(), self._desk.peek.live(), most, running=running)

    def memory(self) -> MemoryOut:
        """The KV pool as gate and engine see it."""
        return memory_out(self.history.looks())

    def retries(self, most: int) -> RetriesOut:
        """Who comes back, how often, and whether as told."""
        tickets = [*(each.ticket for each in self._desk.recent()), *self._desk.peek.live()]
        return read.retries_out(self.history.looks(), self._recorder, tickets, most)

    def backends(self) -> BackendsOut:
        """The engines behind the gate."""
        return backends_out(self._desk.snapshot(), self._drains.holds)

    def reasons(self) -> ReasonsOut:
        """Outcomes by reason and class, of the requests that ended of late."""
        return read.reasons_out(self._desk.recent(), self._clock.monotonic())

    def slo(self, price_per_hour: float | None) -> SloReport:
        """Budgets, burn, goodput and cost."""
        now = self._clock.monotonic()
        before = {}
        for name, seconds in WINDOWS.items():
            at, counts = self.history.counts_before(now - seconds)
            before[name] = (min(now - self._born, now - at), counts)
        return report(
            now=count(self._recorder),
            since=now - self._born,
            before=before,
            targets=self._recorder.registry.targets,
            price_per_hour=price_per_hour,
        )
