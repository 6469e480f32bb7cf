"""An engine in virtual time: chunked prefill, one token per decoding sequence, by a step model."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.admission.rig import CODEC, Door, VirtualTimer
from tests.fakes import tiny_card

from surgetank.admission.api import Ask, Headers
from surgetank.admission.desk import FrontDesk
from surgetank.admission.gate import GateConfig
from surgetank.admission.outcome import Refused
from surgetank.admission.routing.affinity import Prefix
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.text_adapter import TextAdapter
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
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.steprecord import StepRecord
from surgetank.telemetry.vocabulary import FinishReason, Priority

TOKEN = CODEC.encode("a")[0]
MODEL = StepModel(t0=0.008, a=0.0001, b=0.0005, c=1e-7)


@dataclass(slots=True)
class Running:
    """One sequence: what is left of its prompt, what it has produced."""

    request: GenerateRequest
    sink: Sink
    unread: int
    produced: int = 0


class VirtualEngine:
    """Steps by itself on the timer while it has work. Every choice ends after `length` tokens."""

    def __init__(self, timer: VirtualTimer, card: ModelCard, model: StepModel = MODEL) -> None:
        self.card: ModelCard | None = card
        self.last_step: StepRecord | None = None
        self.model = model
        self.slower = 1.0  # factor on every step
        self.frozen_until = 0.0
        self.length = 10_000  # tokens at which a choice stops by itself
        self.steps = 0
        self.started = 0
        self.watcher: Watcher | None = None
        self._timer = timer
        self._work: list[Running] = []  # in order of arrival; the first max_num_seqs run
        self._stepping = False
        self._last_at = 0.0

    @property
    def vitals(self) -> Vitals:
        """Nothing is ever on its way to it: it always has what it was sent."""
        return Vitals(drift=0, requests=len(self._work))

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        if self.card is None:
            raise BackendDown("virtually dead")
        if not self._work:
            self._last_at = self._timer.clock.monotonic()
        self._work.append(Running(request, sink, len(request.prompt)))
        self.started += 1
        self._go()

    def cancel(self, request_id: int, index: int = -1) -> None:
        self._work = [each for each in self._work if each.request.request_id != request_id]

    def apply(self, settings: Settings) -> None:
        raise AssertionError("the desk changes no engine settings")

    def die(self) -> None:
        """With all that it has."""
        self.card, lost, self._work = None, self._work, []
        for each in lost:
            each.sink.on_lost("virtually dead")
        if self.watcher is not None:
            self.watcher.on_down("virtually dead")

    def come_up(self, card: ModelCard) -> None:
        self.card, self.last_step = card, None
        if self.watcher is not None:
            self.watcher.on_up(card)

    def stalled_for(self, now: float) -> float | None:
        if self.card is None:
            return None
        return now - self._last_at if self._work else 0.0

    def _go(self) -> None:
        if self._stepping or not self._work or self.card is None:
            return
        self._stepping = True
        batch = self._work[: self.card.max_num_seqs]
        decoding = [each for each in batch if not each.unread]
        room = self.card.max_batch_tokens - len(decoding)
        reading: list[tuple[Running, int]] = []
        for each in batch:
            if each.unread and room:
                chunk = min(room, each.unread)
                reading.append((each, chunk))
                room -= chunk
        resident = sum(len(each.request.prompt) - each.unread + each.produced for each in batch)
        read = sum(chunk for _, chunk in reading)
        seconds = self.slower * self.model.seconds(read, len(decoding), resident)
        now = self._timer.clock.monotonic()
        ends = max(now + seconds, self.frozen_until + seconds if self.frozen_until > now else 0.0)
        self._timer.call_later(
            ends - now, lambda: self._step(decoding, reading, resident, ends - now)
        )

    def _step(
        self,
        decoding: list[Running],
        reading: list[tuple[Running, int]],
        resident: int,
        seconds: float,
    ) -> None:
        self._stepping = False
        if self.card is None:
            return
        self.steps += 1
        self._last_at = self._timer.clock.monotonic()
        started = []
        for each, chunk in reading:
            if each.unread == len(each.request.prompt):
                started.append(Started(each.request.request_id, 0))
                each.sink.on_started(started[-1])
            each.unread -= chunk
        ready = decoding + [each for each, _ in reading if not each.unread]
        for each in ready:
            if each in self._work:
                self._produce(each)
        read = sum(chunk for _, chunk in reading)
        self.last_step = self._record(read, len(decoding), resident, seconds)
        if self.watcher is not None:
            self.watcher.on_step(StepOutput([], started, self.last_step))
        self._go()

    def _produce(self, each: Running) -> None:
        each.produced += 1
        last = each.produced >= min(self.length, each.request.sampling.max_tokens)
        finish = FinishReason.LENGTH if last else None
        if last:
            self._work.remove(each)
        for index in range(each.request.n):
            each.sink.on_tokens(Tokens(each.request.request_id, index, [TOKEN], None, finish))

    def _record(self, read: int, decoding: int, resident: int, seconds: float) -> StepRecord:
        counts = [0] * len(Priority)
        for each in self._work:
            counts[each.request.priority] += each.request.n
        critical, default, batch, sheddable = counts
        return StepRecord(
            step=self.steps,
            at=self._last_at,
            drain=0.0,
            schedule=0.0,
            forward=seconds,
            sample=0.0,
            emit=0.0,
            idle=0.0,
            prefill_tokens=read,
            decode_tokens=decoding,
            prefill_seqs=0,
            decode_seqs=decoding,
            token_budget=256,
            slots_filled=decoding,
            slots_no_work=0,
            slots_blocked_kv=0,
            slots_blocked_token_budget=0,
            slots_blocked_limit=0,
            slots_blocked_other=0,
            waiting=(0, 0, 0, 0),
            running=(critical, default, batch, sheddable),
            contended=False,
            kv_used=resident // 16,
            kv_cached=0,
            kv_free=4096 - resident // 16,
            kv_stored_tokens=resident,
            kv_resident_tokens=resident,
            prefix_hit_tokens=0,
            prefix_miss_tokens=0,
            prefill_backlog=sum(each.unread for each in self._work),
        )


class Service:
    """A desk in front of a virtual engine, and clients that send to it."""

    def __init__(
        self,
        config: GateConfig | None = None,
        card: ModelCard | None = None,
        engine: type[VirtualEngine] = VirtualEngine,
        *,
        engines: int = 1,
        routing: RoutingConfig | None = None,
    ) -> None:
        card = card or tiny_card(max_num_seqs=16, kv_blocks=4096)
        self.clock = ManualClock()
        self.timer = VirtualTimer(self.clock)
        self.engines = [engine(self.timer, card) for _ in range(engines)]
        self.engine = self.engines[0]
        self.recorder = Recorder(Registry(Process.SIDECAR))
        self.rng = random.Random(5)
        self.desk = FrontDesk(
            adapter=TextAdapter(*self.engines, make_codec=lambda _: CODEC),
            recorder=self.recorder,
            clock=self.clock,
            rng=random.Random(7),
            call_later=self.timer.call_later,
            config=config,
            routing=routing,
        )
        for each, watcher in zip(self.engines, self.desk.engines.watchers, strict=True):
            each.watcher = watcher
            each.come_up(card)
        self._prompts = 0

    def send(
        self,
        *,
        prompt: int = 50,
        max_tokens: int = 20,
        n: int = 1,
        tenant: str = "",
        priority: Priority = Priority.DEFAULT,
        headers: Headers = (),
        same: bool = False,
        prefix: Prefix | None = None,
    ) -> Door:
        """One request with a prompt of its own, or with the `same` one as others of that length."""
        door = Door()
        ticket = self.desk.arrive("http", headers)
        ticket.priority, ticket.tenant, ticket.stream = priority, tenant, True
        ticket.prefix = prefix
        self._prompts += 1
        mark = [1, 1, 1] if same else [2 + self._prompts // 100 % 100, 2 + self._prompts % 100, 3]
        ask = Ask((mark + [1] * prompt)[:prompt], SamplingParams(max_tokens=max_tokens), n)
        try:
            door.call = self.desk.submit(ticket, self.desk.find("default"), ask, door)
        except Refused as refused:
            door.refusal = refused.refusal
        return door

    def flow(self, rate: float, seconds: float, send: Callable[[], Door]) -> list[Door]:
        """Poisson arrivals, for so long."""
        return [send() for _ in self.arrivals(rate, seconds)]

    def arrivals(self, rate: float, seconds: float) -> Iterator[None]:
        """Yields at each arrival's instant."""
        until = self.clock.monotonic() + seconds
        while (pause := self.rng.expovariate(rate)) < until - self.clock.monotonic():
            self.timer.advance(pause)
            yield
        self.timer.advance(until - self.clock.monotonic())

    def warm_up(self) -> None:
        """Enough steps for the step model."""
        self.flow(5.0, 12.0, self.send)
        self.timer.advance(10.0)
        assert self.desk.snapshot().laws.fitted
