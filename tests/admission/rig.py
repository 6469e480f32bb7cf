"""A desk in virtual time: an engine that the test plays, a timer it turns, doors that listen."""

import random
from collections.abc import Callable, Sequence

import pytest
from tests.fakes import tiny_card

from surgetank.admission.api import Ask, Delta, End, Headers
from surgetank.admission.desk import FrontDesk
from surgetank.admission.gate import GateConfig
from surgetank.admission.leases.config import LeasesConfig
from surgetank.admission.leases.quotas import Quotas
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.routing.affinity import Prefix
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.tenants import Tenants
from surgetank.admission.text_adapter import TextAdapter
from surgetank.admission.ticket import Ticket
from surgetank.admission.tracing import Silence, Tracing
from surgetank.admission.work import Work
from surgetank.engine.api import (
    BackendDown,
    GenerateRequest,
    ModelCard,
    SamplingParams,
    Settings,
    Sink,
    Started,
    StepOutput,
    Tokens,
    Watcher,
)
from surgetank.engine.backends.remote.found import Vitals
from surgetank.engine.text.codec import TextCodec
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Priority

CARD = tiny_card()
CODEC = TextCodec(CARD)


class VirtualTimer:
    """call_later over a manual clock: advance() fires what falls due, at its very instant."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._next = 0

    def call_later(self, delay: float, callback: Callable[[], None], /) -> "VirtualHandle":
        self._next += 1
        self._due[self._next] = (self.clock.monotonic() + delay, callback)
        return VirtualHandle(self._due, self._next)

    def advance(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        while ready := [(at, key) for key, (at, _) in self._due.items() if at <= until]:
            at, key = min(ready)
            callback = self._due.pop(key)[1]
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            callback()
        self.clock.advance(max(0.0, until - self.clock.monotonic()))


class VirtualHandle:
    """Takes its timer back."""

    def __init__(self, due: dict[int, tuple[float, Callable[[], None]]], key: int) -> None:
        self._due = due
        self._key = key

    def cancel(self) -> None:
        self._due.pop(self._key, None)


class PlayedBackend:
    """An engine that does nothing by itself: the test says what it produces, and when it dies."""

    def __init__(self, clock: ManualClock) -> None:
        self.card: ModelCard | None = None
        self.last_step: StepRecord | None = None
        self.vitals = Vitals()
        self.started: list[GenerateRequest] = []  # all that ever came
        self.open: dict[int, tuple[GenerateRequest, Sink]] = {}
        self.cancelled: list[tuple[int, int]] = []
        self.watcher: Watcher | None = None
        self.stalled = 0.0

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        if self.card is None:
            raise BackendDown("played dead")
        self.started.append(request)
        self.open[request.request_id] = (request, sink)

    def cancel(self, request_id: int, index: int = -1) -> None:
        self.cancelled.append((request_id, index))
        if index == -1:
            self.open.pop(request_id, None)

    def apply(self, settings: Settings) -> None:
        raise AssertionError("the desk changes no engine settings")

    def stalled_for(self, now: float) -> float | None:
        return self.stalled if self.card else None

    def emit(
        self,
        request_id: int,
        text: str = "",
        *,
        index: int = 0,
        finish: FinishReason | None = None,
        detail: str = "",
    ) -> None:
        """Tokens of one choice, one for each character."""
        sink = self.open[request_id][1]
        sink.on_tokens(Tokens(request_id, index, CODEC.encode(text), None, finish, detail))

    def finish(self, request_id: int, text: str = "ok") -> None:
        """Start a request and serve all its choices to the end."""
        request, sink = self.open[request_id]
        sink.on_started(Started(request_id, 0))
        for index in range(request.n):
            self.emit(request_id, text, index=index, finish=FinishReason.STOP)
        self.open.pop(request_id, None)
        if self.watcher is not None:
            self.watcher.on_step(StepOutput([], [], None))

    def die(self, detail: str = "gone") -> None:
        self.card = None
        lost, self.open = self.open, {}
        for _, sink in lost.values():
            sink.on_lost(detail)
        if self.watcher is not None:
            self.watcher.on_down(detail)

    def come_up(self, card: ModelCard = CARD) -> None:
        self.card = card
        if self.watcher is not None:
            self.watcher.on_up(card)


class Door:
    """Listens to one request."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.ends: list[End] = []
        self.refusal: Refusal | None = None  # set when submit() refused
        self.call: Work | None = None

    def on_delta(self, delta: Delta) -> None:
        self.deltas.append(delta)

    def on_end(self, end: End) -> None:
        self.ends.append(end)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it has not. Fails when it ended twice."""
        refused = [] if self.refusal is None else [self.refusal.outcome]
        outcomes = [end.outcome for end in self.ends] + refused
        assert len(outcomes) <= 1
        return outcomes[0] if outcomes else None


class Rig:
    """A desk with everything around it."""

    def __init__(
        self,
        config: GateConfig | None = None,
        card: ModelCard = CARD,
        *,
        engines: int = 1,
        routing: RoutingConfig | None = None,
        tenants: Tenants | None = None,
        leases: LeasesConfig | None = None,
        make_tracer: Callable[[Recorder, ManualClock], Tracing] = lambda *_: Silence(),
    ) -> None:
        self.clock = ManualClock()
        self.timer = VirtualTimer(self.clock)
        self.backends = [PlayedBackend(self.clock) for _ in range(engines)]
        self.backend = self.backends[0]
        self.recorder = Recorder(Registry(Process.SIDECAR))
        self.quotas = Quotas(leases or LeasesConfig(), self.clock)
        self.desk = FrontDesk(
            adapter=TextAdapter(*self.backends, make_codec=lambda _: CODEC),
            recorder=self.recorder,
            clock=self.clock,
            rng=random.Random(7),
            call_later=self.timer.call_later,
            config=config,
            tenants=tenants,
            quotas=self.quotas,
            tracer=make_tracer(self.recorder, self.clock),
            routing=routing,
        )
        for backend, watcher in zip(self.backends, self.desk.engines.watchers, strict=True):
            backend.watcher = watcher
            backend.come_up(card)

    def arrive(self, headers: Headers = ()) -> Ticket:
        return self.desk.arrive("http", headers)

    def send(
        self,
        *,
        prompt: int = 4,
        max_tokens: int = 8,
        n: int = 1,
        stop: Sequence[str] = (),
        headers: Headers = (),
        priority: Priority | None = None,
        stream: bool = False,
        prefix: Prefix | None = None,
        door: Door | None = None,
    ) -> Door:
        """A whole request; a refusal is kept in the door."""
        door = door or Door()
        ticket = self.arrive(headers)
        ticket.stream, ticket.prefix = stream, prefix
        ticket.priority = ticket.priority if priority is None else priority
        ask = Ask([1] * prompt, SamplingParams(max_tokens=max_tokens), n, tuple(stop))
        try:
            door.call = self.desk.submit(ticket, self.desk.find("default"), ask, door)
        except Refused as refused:
            door.refusal = refused.refusal
        return door

    def occupy(self, n: int = 1) -> Door:
        """Fill the engine with one request, so that the next ones wait."""
        door = self.send(n=n)
        assert len(self.backend.started) == 1
        return door

    @property
    def queued(self) -> int:
        return self.desk.snapshot().queue_requests

    def check_conservation(self) -> None:
        """received = outcomes + in flight."""
        totals = self.recorder.totals()
        assert totals.received == sum(totals.outcomes.values()) + totals.in_flight


def refused(door: Door) -> Refusal:
    """The refusal that a door got, either way; fails when there is none."""
    refusal = door.ends[0].refusal if door.ends else door.refusal
    if refusal is None:
        pytest.fail(f"not refused: {door.ends}")
    return refusal
