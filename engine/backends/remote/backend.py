"""An engine behind an HTTP address, as the gate sees it: found, watched, asked, lost, found again.

It reports no steps: they are inferred from the answers that pass by (inferred.py), so that the laws
work on it as on the embedded engine. All methods belong to the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Protocol

from surgetank.engine.api import BackendDown, ModelCard, Settings, StepOutput, Watcher
from surgetank.engine.backends.remote.api import (
    PUSHBACK,
    AnswerHead,
    AnswerSink,
    Forward,
    Usage,
)
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.found import UNKNOWN, Found, NotFound, Signals, Vitals
from surgetank.engine.backends.remote.inferred import InferredSteps
from surgetank.engine.backends.remote.upstream import Upstream, unreachable
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.steprecord import StepRecord

log = logging.getLogger(__name__)

AT_ONCE = 1.0  # seconds after which a kept connection's end has to do with the request
MISSES = 3  # looks without an answer after which an engine counts as gone


class Probe(Protocol):
    """Asks the engine about itself; discovery.Discovery, but in tests."""

    async def find(self) -> Found:
        """What is there. Raises NotFound."""

    async def look(self, found: Found) -> Signals:
        """Its signals now. Raises NotFound when it does not answer."""

    async def aclose(self) -> None:
        """Close what it holds open."""


class Line(Protocol):
    """Carries one request, and its answer back."""

    used: bool  # by a request before
    heard: bool  # of the running request, anything has come back

    def send(self, request: Forward, sink: AnswerSink) -> None:
        """Begin a request."""

    def hold(self, held: bool) -> None:
        """Read no further for now, or go on."""

    def told(self) -> Usage | None:
        """What its stream says of itself, once its last event has come; None: it goes on."""

    def hang_up(self) -> None:
        """End it; the sink hears nothing more."""


class Lines(Protocol):
    """How the engine is reached: upstream.Upstream, or grpc_engine.GrpcEngine."""

    def take(self) -> Line | None:
        """One that is there already; None: connect()."""

    async def connect(self) -> Line:
        """A new one. Raises OSError, TimeoutError among them."""

    def close(self) -> None:
        """Close those that carry nothing."""


@dataclass(slots=True, eq=False)
class _Open:
    """One request on its way: the sink that its connection knows."""

    backend: "RemoteBackend"
    request_id: int
    request: Forward
    sink: AnswerSink
    connection: Line | None = None  # None: being made
    reused: bool = False
    sent_at: float = 0.0

    def on_head(self, head: AnswerHead) -> None:
        self.backend.answered(head)
        self.sink.on_head(head)

    def on_data(self, data: bytes, events: int, between: bool) -> None:
        self.sink.on_data(data, events, between)
        if events:
            self.backend.spoke(self.request_id, events)

    def on_done(self, usage: Usage) -> None:
        self.backend.done(self, usage)

    def on_lost(self, detail: str) -> None:
        self.backend.lost(self, detail)


class RemoteBackend:
    """Implements api.Remote. start() it once, aclose() it once."""

    def __init__(
        self,
        config: BackendConfig,
        clock: Clock,
        probe: Probe,
        lines: Lines | None = None,
        look_every: float = 1.0,
    ) -> None:
        """`lines`: None for HTTP. `look_every`: seconds between two looks at the engine."""
        self.name, self.url = config.name, config.url
        self.found: Found | None = None  # None while it is not there
        self.signals = Signals()
        self.last_step: StepRecord | None = None
        self._clock = clock
        self._probe = probe
        self._look_every = look_every
        self._lines = lines or Upstream(config.url, clock, config.credentials)
        self._steps = InferredSteps(0, 0)
        self._watchers: list[Watcher] = []
        self._open: dict[int, _Open] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = 0
        self._moved_at = 0.0  # when the engine last gave a sign of work, or was given some
        self._heard_at = 0.0  # when anything last came from it
        self._kind = UNKNOWN  # of the engine that was there last
        self._drift: int | None = None
        self._pushbacks = 0
        self._complained = ""

    @property
    def card(self) -> ModelCard | None:
        """None while the engine is not there."""
        return None if self.found is None else self.found.card

    @property
    def models(self) -> tuple[str, ...]:
        """Every name that it answers to; none while it is not there."""
        return () if self.found is None else self.found.models

    @property
    def vitals(self) -> Vitals:
        """What it tells of itself, now."""
        return Vitals(self._kind, self.url, self.found, self.signals, self._drift, self._pushbacks)

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of steps, and of the engine's coming and going; before start()."""
        self._watchers.append(watcher)

    def start(self) -> None:
        """Begin to look for the engine, in a task of the running event loop."""
        self._spawn(self._stay())

    async def aclose(self) -> None:
        """Hang up everything; requests that are still open hear on_lost."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.found is not None:
            self._let_go("the sidecar closes", "the sidecar closes")
        self._lines.close()
        await self._probe.aclose()

    def stalled_for(self, now: float) -> float | None:
        """Seconds without a sign of work while the engine has some that gives signs: streams, or
        any if it tells how many tokens it produced. None while it is away."""
        if self.found is None:
            return None
        told = self.signals.output_tokens is not None
        works = self._steps.requests if told else self._streams
        return max(0.0, now - self._moved_at) if works else 0.0

    def apply(self, settings: Settings) -> None:
        """Its budgets are its own: the gate holds back what its limits say, nothing is sent."""

    def forward(self, request_id: int, request: Forward, sink: AnswerSink) -> None:
        """Send one request. Raises BackendDown when there is no engine."""
        if self.found is None:
            raise BackendDown("the engine is not there")
        entry = _Open(self, request_id, request, sink)
        if request.carrier is not None:
            request.carrier.go(self.url, request, entry)
        now = self._clock.monotonic()
        if self.stalled_for(now) == 0.0:
            self._moved_at = now
        self._streams += request.stream
        self._open[request_id] = entry
        self._steps.dispatched(request_id, request.prompt_tokens, now)
        if request.carrier is not None:
            return
        connection = self._lines.take()
        if connection is None:
            self._spawn(self._connect(entry))
        else:
            self._send(entry, connection)

    def cancel(self, request_id: int) -> Usage | None:
        """Hang up, which is how such engines are told to stop."""
        entry = self._forget(request_id)
        if entry is None:
            return None
        self._steps.cancelled(request_id)
        if entry.connection is None:
            return None
        told = entry.connection.told()
        entry.connection.hang_up()
        return told

    def hold(self, request_id: int, held: bool) -> None:
        """The client does not keep up: read no further for now, or go on."""
        entry = self._open.get(request_id)
        if entry is not None and entry.connection is not None:
            entry.connection.hold(held)

    # What the open requests tell.

    def answered(self, head: AnswerHead) -> None:
        """An answer begins."""
        self._heard_at = self._clock.monotonic()
        self._pushbacks += head.status in PUSHBACK

    def spoke(self, request_id: int, events: int) -> None:
        """Events of a stream came."""
        self._moved_at = self._heard_at = now = self._clock.monotonic()
        record = self._steps.spoke(request_id, events, now)
        if record is not None:
            self._stepped(record)

    def done(self, entry: _Open, usage: Usage) -> None:
        """An answer is complete."""
        self._moved_at = self._heard_at = now = self._clock.monotonic()
        self._forget(entry.request_id)
        record = self._steps.ended(entry.request_id, usage.output_tokens, now)
        entry.sink.on_done(usage)
        if record is not None:
            self._stepped(record)

    def lost(self, entry: _Open, detail: str) -> None:
        """Its connection broke. A kept one may have been closed just when it was used again: the
        engine has not read the request then, and it is sent once more. Not later than AT_ONCE: the
        engine may have worked on it."""
        if self._open.get(entry.request_id) is not entry:
            return
        connection = entry.connection
        soon = self._clock.monotonic() - entry.sent_at < AT_ONCE
        if connection is not None and entry.reused and soon and not connection.heard:
            entry.connection, entry.reused = None, False
            self._spawn(self._connect(entry))
            return
        self._fail(entry, detail)

    # Inside.

    def _fail(self, entry: _Open, detail: str) -> None:
        self._forget(entry.request_id)
        self._steps.cancelled(entry.request_id)
        entry.sink.on_lost(detail)

    def _forget(self, request_id: int) -> _Open | None:
        entry = self._open.pop(request_id, None)
        if entry is not None:
            self._streams -= entry.request.stream
        return entry

    async def _connect(self, entry: _Open) -> None:
        try:
            connection = await self._lines.connect()
        except OSError as error:  # TimeoutError among them
            if self._open.get(entry.request_id) is entry:
                self._complain(f"no connection to {self.url}: {str(error) or 'timed out'}")
                self._fail(entry, f"the engine cannot be reached: {unreachable(error)}")
            return
        if self._open.get(entry.request_id) is entry:
            self._send(entry, connection)
        else:
            connection.hang_up()  # cancelled meanwhile

    def _send(self, entry: _Open, connection: Line) -> None:
        entry.connection, entry.reused = connection, connection.used
        entry.sent_at = self._clock.monotonic()
        connection.send(entry.request, entry)

    def _stepped(self, record: StepRecord) -> None:
        self.last_step = record
        self._tell(record)

    def _tell(self, record: StepRecord) -> None:
        output = StepOutput(tokens=[], started=[], record=record)
        for watcher in self._watchers:
            watcher.on_step(output)

    async def _stay(self) -> None:
        """Find the engine, look at it again and again, and find it anew when it was lost."""
        while True:
            try:
                found = await self._probe.find()
                self._come(found)
                self._gone(await self._look(found))
            except NotFound as error:
                self._complain(str(error))
            except Exception as error:  # whatever it says, it is looked for again
                self._gone(what := f"{self.url} cannot be followed: {error!r}")
                self._complain(what, fault=True)
            await asyncio.sleep(self._look_every)

    async def _look(self, found: Found) -> str:
        """Scrape until nothing answers any more, or what does serves another model; returns why.
        One that is too busy to answer a scrape while it answers requests is not lost."""
        misses, doubted, looked_at = 0, False, self._clock.monotonic()
        while True:
            try:
                signals = await self._probe.look(found)
            except NotFound as error:
                doubted = True
                misses = 0 if self._heard_at > looked_at else misses + 1
                if misses >= MISSES:
                    return str(error)
            else:
                misses = 0
                self._learn(signals)
                still = await self._still_serves(found.card.name) if doubted else True
                if still is False:
                    return f"it was started anew, without {found.card.name}"
                doubted = still is None
            looked_at = self._clock.monotonic()
            await asyncio.sleep(self._look_every)

    async def _still_serves(self, model: str) -> bool | None:
        """Asked after a look that it did not answer; None: it is too busy to say."""
        try:
            return model in (await self._probe.find()).models
        except NotFound:
            return None

    def _learn(self, signals: Signals) -> None:
        now = self._clock.monotonic()
        if signals.at is None:  # they could not be read: what was read last grows old
            signals = replace(signals, at=self.signals.at)
        if signals.output_tokens != self.signals.output_tokens:
            self._moved_at = now
        self.signals, self._drift = signals, None
        if signals.running is not None:
            ours = sum(entry.request.seqs for entry in self._open.values())
            self._drift = ours - round(signals.running + (signals.waiting or 0.0))
        record = self._steps.looked(signals.kv_used, now)
        if record is not None:
            self._tell(record)

    def _come(self, found: Found) -> None:
        log.info("engine %s is there: %s, at %s", self.name, found.describe(), self.url)
        self.found, card = found, found.card
        self._kind, self._complained = found.kind, ""
        if not found.metrics:
            self.signals = Signals()
        self._steps = InferredSteps(card.max_num_seqs, card.kv_blocks)
        for watcher in self._watchers:
            watcher.on_up(card)

    def _gone(self, why: str) -> None:
        if self.found is None:
            return
        self._complain(f"engine {self.name} lost: {why}")
        self._let_go(why, "the engine was lost")

    def _let_go(self, why: str, told: str) -> None:
        """Clients are `told` no addresses."""
        self.found = self.last_step = self._drift = None
        self._lines.close()
        lost, self._open, self._streams = self._open, {}, 0
        for entry in lost.values():
            if entry.connection is not None:
                entry.connection.hang_up()
            entry.sink.on_lost(told)
        for watcher in self._watchers:
            watcher.on_down(why)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _complain(self, what: str, *, fault: bool = False) -> None:
        """Log a trouble once, not at every attempt; `fault`: with where it comes from."""
        if what != self._complained:
            self._complained = what
            log.warning("%s", what, exc_info=fault)
