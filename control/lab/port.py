"""A sidecar's connection to a simulated engine: engine.api.Backend in virtual time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from surgetank.control.lab.decoding import Seq
from surgetank.engine.api import (
    BackendDown,
    GenerateRequest,
    ModelCard,
    Settings,
    Sink,
    Started,
    StepOutput,
    Tokens,
    Watcher,
)
from surgetank.engine.backends.remote.found import Vitals
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import FinishReason

if TYPE_CHECKING:
    from surgetank.control.lab.engine import SimulatedEngine

_OUTPUT = [0] * 32_768  # what the simulated engine says: so many tokens, no words


@dataclass(eq=False, slots=True)
class Job:
    """One request between its sidecar and the engine."""

    port: "Port"
    request_id: int
    sink: Sink
    seq: Seq
    size: int  # tokens that it may come to
    finish: FinishReason
    deadline: float | None
    told: int = 0  # output tokens delivered

    def started(self, cached: int) -> None:
        """It left the engine's line."""
        if self.open:
            self.sink.on_started(Started(self.request_id, cached))

    def tokens(self, count: int, finish: FinishReason | None, detail: str = "") -> None:
        """Deliver what came since the last time; nobody listens to a cancelled request."""
        if self.open:
            if finish is not None:
                del self.port.jobs[self.request_id]
            self.told += count
            ids = _OUTPUT[:count]
            self.sink.on_tokens(Tokens(self.request_id, 0, ids, None, finish, detail))

    @property
    def open(self) -> bool:
        """Whether anyone still waits for it."""
        return self.port.jobs.get(self.request_id) is self


class Port:
    """What one sidecar sees of the engine. Several may be connected to the same one."""

    def __init__(self, engine: "SimulatedEngine") -> None:
        self.jobs: dict[int, Job] = {}
        self.last_step: StepRecord | None = None
        self.shared = False  # with other sidecars
        self.vitals = Vitals()  # all that it tells is in its steps
        self._engine = engine
        self._watchers: list[Watcher] = []
        self._settings = Settings()  # for a restarted engine
        self._open_since = 0.0

    @property
    def card(self) -> ModelCard | None:
        """None while the engine is down."""
        return self._engine.card

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of steps, and of the engine's coming and going."""
        self._watchers.append(watcher)

    def stalled_for(self, now: float) -> float | None:
        """Seconds without a step while this sidecar's requests are in the engine."""
        if self.card is None:
            return None
        if not self.jobs:
            return 0.0
        return max(0.0, now - max(self._engine.last_boundary, self._open_since))

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        """Hand over one request; raises BackendDown while the engine is down."""
        if self.card is None:
            raise BackendDown("the simulated engine is down")
        if not self.jobs:
            self._open_since = self._engine.now
        job = self._engine.job(request, self, sink)
        self.jobs[request.request_id] = job
        self._engine.submit(job)

    def cancel(self, request_id: int, index: int = -1) -> None:
        """Stop a request; its blocks are freed before the next step."""
        if (job := self.jobs.pop(request_id, None)) is not None:
            self._engine.cancel(job)

    def apply(self, settings: Settings) -> None:
        """Change the engine's budgets before its next step."""
        known = {key: value for key, value in asdict(settings).items() if value is not None}
        self._settings = replace(self._settings, **known)
        self._engine.apply(self._settings)

    # For the engine.

    def told(self, record: StepRecord | None) -> None:
        """A step's tokens were delivered; None while its metrics are frozen."""
        if record is not None and self.shared:
            total = sum(record.running) + sum(record.waiting)
            record = replace(record, others=max(0, total - len(self.jobs)))
        self.last_step = record or self.last_step
        output = StepOutput([], [], record)
        for watcher in self._watchers:
            watcher.on_step(output)

    def up(self, card: ModelCard) -> None:
        """A (re)started engine said hello."""
        if self._settings != Settings():
            self._engine.apply(self._settings)
        for watcher in self._watchers:
            watcher.on_up(card)

    def down(self, detail: str) -> None:
        """The engine is gone with every request in it."""
        lost, self.jobs = self.jobs, {}
        for job in lost.values():
            job.sink.on_lost(detail)
        for watcher in self._watchers:
            watcher.on_down(detail)
