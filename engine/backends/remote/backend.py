"""An engine behind an address, as the gate sees it: found, watched (watch.py), asked, lost.

It reports no steps: they are inferred from the answers that pass by (inferred.py), so that the laws
work on it as on the embedded engine. All methods belong to the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from surgetank.engine.api import BackendDown, ModelCard, Settings, StepOutput, Watcher
from surgetank.engine.backends.remote.api import (
    PUSHBACK,
    AnswerHead,
    AnswerSink,
    Forward,
    Usage,
)
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.found import UNKNOWN, Found, Signals, Vitals
from surgetank.engine.backends.remote.inferred import InferredSteps
from surgetank.engine.backends.remote.own import OwnCount
from surgetank.engine.backends.remote.plain import PlainAnswers
from surgetank.engine.backends.remote.underway import Line, Lines, Underway
from surgetank.engine.backends.remote.upstream import Upstream, unreachable
from surgetank.engine.backends.remote.watch import Probe, Watch
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.steprecord import StepRecord

log = logging.getLogger(__name__)

AT_ONCE = 1.0  # seconds after which a kept connection's end has to do with the request


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
        self.heard_at = 0.0  # when anything last came from it
        self.refuses = False  # it takes no connections any more, but may complete what it has
        self._clock = clock
        self._probe = probe
        self._watch = Watch(probe, self, clock, look_every)
        self._lines = lines or Upstream(
            config.url,
            clock,
            self.spoke_directly,
            config.credentials,
            config.tls,
            config.server_name,
        )
        self._steps = InferredSteps(0, 0)
        self._plain = PlainAnswers()
        self._watchers: list[Watcher] = []
        self._open: dict[int, Underway] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams = 0
        self._own = OwnCount()
        self._moved_at = 0.0  # when the engine last gave a sign of work, or was given some
        self._tokens: float | None = None  # that it had produced, as it last told
        self._kind = UNKNOWN  # of the engine that was there last
        self._drift: int | None = None
        self._pushbacks = 0
        self._complained = ""

    @property
    def card(self) -> ModelCard | None:
        """None while the engine is not there, or takes no requests."""
        return None if self.found is None or self.refuses else self.found.card

    @property
    def models(self) -> tuple[str, ...]:
        """Every name that it answers to; none while it is not there."""
        return () if self.found is None else self.found.models

    @property
    def vitals(self) -> Vitals:
        """What it tells of itself, now."""
        told = (self._kind, self.url, self.found, self.signals, self._drift)
        return Vitals(*told, self._pushbacks, self._plain.patience, len(self._open))

    @property
    def busy(self) -> bool:
        """Whether an answer may still come by a connection of ours."""
        return any(entry.connection is not None for entry in self._open.values())

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of steps, and of the engine's coming and going; before start()."""
        self._watchers.append(watcher)

    def start(self) -> None:
        """Begin to look for the engine, in a task of the running event loop."""
        self._spawn(self._watch.run())

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
        any if it tells how many tokens it produced; else beyond what plain answers may take
        (plain.py). None while it is away."""
        if self.found is None:
            return None
        if self._shows_work:
            return max(0.0, now - self._moved_at)
        return self._plain.overdue(now)

    @property
    def _shows_work(self) -> bool:
        """Whether it has work of which signs would come all the time."""
        told = self.signals.output_tokens is not None
        return bool(self._steps.requests if told else self._streams)

    def apply(self, settings: Settings) -> None:
        """Its budgets are its own: the gate holds back what its limits say, nothing is sent."""

    def forward(self, request_id: int, request: Forward, sink: AnswerSink) -> None:
        """Send one request. Raises BackendDown when there is no engine."""
        if self.card is None:
            raise BackendDown("the engine is not there")
        entry = Underway(self, request_id, request, sink)
        if request.carrier is not None:
            request.carrier.go(self.url, request, entry)
            entry.begun = True
        now = self._clock.monotonic()
        if not self._shows_work:
            self._moved_at = now
        self._streams += request.stream
        self._own.add(request.seqs)
        self._open[request_id] = entry
        self._take_in(request_id, request, now)
        if request.carrier is not None:
            return
        connection = self._lines.take()
        if connection is None:
            self._spawn(self._connect(entry))
        else:
            self._send(entry, connection)

    def cancel(self, request_id: int) -> Usage | None:
        """Hang up, which is how such engines are told to stop."""
        entry = self._open.get(request_id)
        connection = None if entry is None else entry.connection
        told = None if connection is None else connection.told()  # what it brought counts first
        if self._forget(request_id) is None:  # counting it may have ended it
            return None
        self._steps.cancelled(request_id)
        if connection is not None:
            connection.hang_up()
        return told

    def hold(self, request_id: int, held: bool) -> None:
        """The client does not keep up: read no further for now, or go on."""
        entry = self._open.get(request_id)
        if entry is not None and entry.connection is not None:
            entry.connection.hold(held)

    # What the open requests tell.

    def answered(self, head: AnswerHead) -> None:
        """An answer begins."""
        self.heard_at = self._clock.monotonic()
        self._pushbacks += head.status in PUSHBACK

    def spoke(self, request_id: int, events: int) -> None:
        """Events of a stream came."""
        self._hear(((request_id, events),), self._clock.monotonic())

    def spoke_directly(self, spoken: Sequence[tuple[Underway, int]], now: float) -> None:
        """Events of several streams came at `now`, and were passed on already."""
        known = self._open
        for entry, events in spoken:
            if known.get(entry.request_id) is entry:  # else it ended when another was counted
                entry.sink.on_events(events, now)
        self._hear([(entry.request_id, events) for entry, events in spoken], now)

    def done(self, entry: Underway, usage: Usage) -> None:
        """An answer is complete."""
        self._moved_at = self.heard_at = now = self._clock.monotonic()
        self._plain.answered(entry.request_id, usage.output_tokens, now)
        self._forget(entry.request_id)
        record = self._steps.ended(entry.request_id, usage.output_tokens, now)
        entry.sink.on_done(usage)
        if record is not None:
            self._stepped(record)

    def lost(self, entry: Underway, detail: str, begun: bool) -> None:
        """Its connection broke, which speaks against the engine. A kept one may have been closed
        just when it was used again: the engine has not read the request then, and it is sent once
        more. Not later than AT_ONCE: the engine may have worked on it."""
        if self._open.get(entry.request_id) is not entry:
            return
        connection = entry.connection
        soon = self._clock.monotonic() - entry.sent_at < AT_ONCE
        if connection is not None and entry.reused and soon and not connection.heard:
            entry.connection, entry.reused = None, False
            self._spawn(self._connect(entry))
            return
        self._watch.doubt()
        entry.begun = begun
        self._fail(entry, detail)

    # What its watch sees (watch.Watched).

    def come(self, found: Found) -> None:
        """It is there."""
        log.info("engine %s is there: %s, at %s", self.name, found.describe(), self.url)
        self._begin(found)

    def renewed(self, found: Found, why: str) -> None:
        """Nothing learned of the process that was there is kept; what the new one has goes on."""
        log.warning("engine %s is another one than it was: %s", self.name, why)
        self._begin(found)

    def told(self, signals: Signals) -> None:
        """Its signals."""
        now = self._clock.monotonic()
        if signals.at is None:  # they could not be read: what was read last grows old
            signals = replace(signals, at=self.signals.at)
        tokens = signals.output_tokens
        if tokens is not None and tokens != self._tokens:  # that they cannot be read is no sign
            self._tokens, self._moved_at = tokens, now
        self.signals, self._drift = signals, self._own.looked(signals.in_it)
        others = None if self._drift is None else max(0, -self._drift)
        record = self._steps.looked(signals.kv_used, others, now)
        if record is not None:
            self._tell(record)

    def refused(self, why: str) -> None:
        """It takes no more requests; what it has may still end well."""
        if self.found is not None and not self.refuses:
            self.refuses = True
            self.complain(f"engine {self.name} takes no connections: {why}")

    def gone(self, why: str) -> None:
        """It is not there any more."""
        if self.found is None:
            return
        self.complain(f"engine {self.name} lost: {why}")
        self._let_go(why, "the engine was lost")

    def complain(self, what: str, *, fault: bool = False) -> None:
        """Log a trouble once, not at every attempt; `fault`: with where it comes from."""
        if what != self._complained:
            self._complained = what
            log.warning("%s", what, exc_info=fault)

    # Inside.

    def _hear(self, spoken: Sequence[tuple[int, int]], now: float) -> None:
        self._moved_at = self.heard_at = now
        record = self._steps.spoke(spoken, now)
        if record is not None:
            self._stepped(record)

    def _take_in(self, request_id: int, request: Forward, now: float) -> None:
        self._steps.dispatched(request_id, request.prompt_tokens, now)
        if not request.stream:
            self._plain.sent(request_id, request.max_tokens, now)

    def _fail(self, entry: Underway, detail: str) -> None:
        self._forget(entry.request_id)
        self._steps.cancelled(entry.request_id)
        entry.sink.on_lost(detail, entry.begun)

    def _forget(self, request_id: int) -> Underway | None:
        entry = self._open.pop(request_id, None)
        if entry is not None:
            self._streams -= entry.request.stream
            self._own.add(-entry.request.seqs)
            self._plain.left(request_id)
        return entry

    async def _connect(self, entry: Underway) -> None:
        try:
            connection = await self._lines.connect()
        except OSError as error:  # TimeoutError among them
            self._watch.doubt()
            if isinstance(error, ConnectionRefusedError):
                self.refused(str(error))
            if self._open.get(entry.request_id) is entry:
                self.complain(f"no connection to {self.url}: {str(error) or 'timed out'}")
                self._fail(entry, f"the engine cannot be reached: {unreachable(error)}")
            return
        if self._open.get(entry.request_id) is entry:
            self._send(entry, connection)
        else:
            connection.hang_up()  # cancelled meanwhile

    def _send(self, entry: Underway, connection: Line) -> None:
        entry.connection, entry.reused, entry.begun = connection, connection.used, True
        entry.sent_at = self._clock.monotonic()
        connection.send(entry.request, entry)

    def _stepped(self, record: StepRecord) -> None:
        self.last_step = record
        self._tell(record)

    def _tell(self, record: StepRecord) -> None:
        output = StepOutput(tokens=[], started=[], record=record)
        for watcher in self._watchers:
            watcher.on_step(output)

    def _begin(self, found: Found) -> None:
        """With what was found; it has what is open."""
        self.found, card, now = found, found.card, self._clock.monotonic()
        self.refuses, self._kind, self._complained = False, found.kind, ""
        if not found.metrics:
            self.signals = Signals()
        self._steps, self._plain = InferredSteps(card.max_num_seqs, card.kv_blocks), PlainAnswers()
        for request_id, entry in self._open.items():
            self._take_in(request_id, entry.request, now)
        for watcher in self._watchers:
            watcher.on_up(card)

    def _let_go(self, why: str, told: str) -> None:
        """Clients are `told` no addresses."""
        self.found = self._drift = None
        self.refuses, self._plain = False, PlainAnswers()
        self._lines.close()  # which may tell of one more step
        self.last_step = None
        lost, self._open, self._streams = self._open, {}, 0
        self._own = OwnCount()
        for entry in lost.values():
            if entry.connection is not None:
                entry.connection.hang_up()
            entry.sink.on_lost(told, entry.begun)
        for watcher in self._watchers:
            watcher.on_down(why)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
