"""Several desks before one engine of another maker, in virtual time: it tells no steps, and once a
second how many sequences it has."""

import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from msgspec.structs import replace
from tests.admission.rig import CODEC, Door, VirtualTimer
from tests.admission.virtual_engine import VirtualEngine
from tests.fakes import tiny_card

from surgetank.admission.api import Ask, Delta
from surgetank.admission.desk import FrontDesk
from surgetank.admission.outcome import Refused
from surgetank.admission.text_adapter import TextAdapter, TextFrontDesk
from surgetank.engine.api import (
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
from surgetank.engine.backends.remote.inferred import InferredSteps
from surgetank.engine.backends.remote.own import OwnCount
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.steprecord import StepRecord

CARD = tiny_card(max_num_seqs=32, max_batch_tokens=2048, kv_blocks=100_000)
MODEL = StepModel(t0=0.01, a=5e-5, b=4e-4, c=1e-7)
PROMPT, OUTPUT = 200, 60
LOOK = 1.0  # seconds
_ids = count(1)


class Telling(VirtualEngine):
    """Says how many sequences it has."""

    @property
    def sequences(self) -> int:
        return len(self._work)


class Port:
    """What one sidecar makes of it: an engine.api.Backend by what RemoteBackend goes by."""

    def __init__(self, engine: Telling, timer: VirtualTimer, *, shares: bool) -> None:
        """`shares`: what it tells of others is told on."""
        self.card: ModelCard | None = CARD
        self.last_step: StepRecord | None = None
        self.vitals = Vitals("vllm", "http://a")
        self.watcher: Watcher | None = None
        self._engine = engine
        self._timer = timer
        self._shares = shares
        self._steps = InferredSteps(CARD.max_num_seqs, CARD.kv_blocks)
        self._own = OwnCount()
        self._open: dict[int, int] = {}  # its ids there
        self._moved_at = 0.0
        self._look()

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        now, there = self._timer.clock.monotonic(), next(_ids)
        if not self._open:
            self._moved_at = now
        self._open[request.request_id] = there
        self._own.add(1)
        self._steps.dispatched(request.request_id, len(request.prompt), now)
        told = _Heard(self, request.request_id, sink)
        self._engine.submit(replace(request, request_id=there), told)

    def cancel(self, request_id: int, index: int = -1) -> None:
        if (there := self._open.pop(request_id, None)) is not None:
            self._own.add(-1)
            self._steps.cancelled(request_id)
            self._engine.cancel(there)

    def apply(self, settings: Settings) -> None:
        raise AssertionError("the desk changes no engine settings")

    def stalled_for(self, now: float) -> float | None:
        return now - self._moved_at if self._open else 0.0

    def heard(self, request_id: int, sink: Sink, tokens: Tokens) -> None:
        """Tokens of a stream came."""
        self._moved_at = now = self._timer.clock.monotonic()
        record = self._steps.spoke([(request_id, len(tokens.token_ids))], now)
        if tokens.finish is not None:
            del self._open[request_id]
            self._own.add(-1)
            record = self._steps.ended(request_id, None, now) or record
        sink.on_tokens(replace(tokens, request_id=request_id))
        self._tell(record)

    def _look(self) -> None:
        drift = self._own.looked(self._engine.sequences)
        others = max(0, -(drift or 0)) if self._shares else None
        self._tell(self._steps.looked(None, others, self._timer.clock.monotonic()))
        self._timer.call_later(LOOK, self._look)

    def _tell(self, record: StepRecord | None) -> None:
        self.last_step = record or self.last_step
        if record is not None and self.watcher is not None:
            self.watcher.on_step(StepOutput([], [], record))


class _Heard:
    """One request's sink, at the engine."""

    def __init__(self, port: Port, request_id: int, sink: Sink) -> None:
        self._port = port
        self._request_id = request_id
        self._sink = sink

    def on_started(self, started: Started) -> None:
        self._sink.on_started(replace(started, request_id=self._request_id))

    def on_moved(self, what: object) -> None:
        raise AssertionError("it puts nobody back")

    def on_tokens(self, tokens: Tokens) -> None:
        self._port.heard(self._request_id, self._sink, tokens)

    def on_lost(self, detail: str) -> None:
        raise AssertionError("it does not die")


class Caller(Door):
    """Knows whether its call was served in time: a first token within a second, 10 tokens/s."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._heard = [clock.monotonic()]

    def on_delta(self, delta: Delta) -> None:
        super().on_delta(delta)
        self._heard.append(self._clock.monotonic())

    @property
    def good(self) -> bool:
        arrived, *heard = self._heard
        if not self.ends or self.ends[0].refusal is not None:
            return False
        return heard[0] - arrived <= 1.0 and heard[-1] - heard[0] <= 0.1 * (len(heard) - 1)


class Shared:
    """`sidecars` before one engine."""

    def __init__(self, sidecars: int, *, shares: bool = True) -> None:
        self.clock = ManualClock()
        self.timer = VirtualTimer(self.clock)
        engine = Telling(self.timer, CARD, MODEL)
        self.desks = []
        for seed in range(sidecars):
            port = Port(engine, self.timer, shares=shares)
            desk = FrontDesk(
                adapter=TextAdapter(port, make_codec=lambda _: CODEC),
                recorder=Recorder(Registry(Process.SIDECAR)),
                clock=self.clock,
                rng=random.Random(seed),
                call_later=self.timer.call_later,
            )
            port.watcher = desk.engines.watchers[0]
            port.watcher.on_up(CARD)
            self.desks.append(desk)
        self._rng = random.Random(1)

    @property
    def capacity(self) -> float:
        """Calls per second of the mean size: 32 at a time, of OUTPUT steps each."""
        model, slots = MODEL, CARD.max_num_seqs
        each = model.a * PROMPT / OUTPUT + model.b + model.c * (PROMPT + OUTPUT / 2)
        return slots / (OUTPUT * (model.t0 + slots * each))

    def call(self, load: float, seconds: float, at: Sequence[int] | None = None) -> list[float]:
        """So many times what the engine can do, each call at one of the sidecars `at`. Returns what
        each sidecar served well, as a share of what the engine can do."""
        served: list[list[Caller]] = [[] for _ in self.desks]
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.timer.advance(self._rng.expovariate(load * self.capacity))
            one = self._rng.choice(at or range(len(self.desks)))
            served[one].append(self._send(self.desks[one]))
        return [sum(each.good for each in calls) / seconds / self.capacity for calls in served]

    def _send(self, desk: TextFrontDesk) -> Caller:
        caller, ticket = Caller(self.clock), desk.arrive("http", ())
        ticket.stream = True
        prompt, output = (
            max(2, int(self._rng.lognormvariate(0.0, 0.5) * mean / 1.13))
            for mean in (PROMPT, OUTPUT)
        )
        words = [self._rng.randint(1, 200) for _ in range(prompt)]
        ask = Ask(words, SamplingParams(max_tokens=output), 1)
        with suppress(Refused):
            desk.submit(ticket, desk.find("default"), ask, caller)
        return caller
