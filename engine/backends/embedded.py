"""The embedded engine as a backend: an asyncio client of its unix socket that never gives up.

All methods belong to the event loop's thread; card, last_step and stalled_for may be read from
others. Nothing blocks: what cannot be sent yet is kept, and shrinks again when it is cancelled.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec

from surgetank.engine.api import (
    PROTOCOL,
    BackendDown,
    Commands,
    GenerateRequest,
    Hello,
    ModelCard,
    Settings,
    Sink,
    StepOutput,
    Tokens,
    Watcher,
)
from surgetank.engine.backends.books import EVERY_CHOICE, Books
from surgetank.engine.backends.remote.found import Vitals
from surgetank.engine.wire import FrameReader, WireError, decode_from_engine, encode
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.steprecord import StepRecord

log = logging.getLogger(__name__)

FIRST_WAIT = 0.05  # seconds before the first new attempt to connect; doubles up to LONGEST_WAIT
LONGEST_WAIT = 1.0


@dataclass(slots=True)
class _Open:
    """A request that the engine has, and the choices that it still owes."""

    sink: Sink
    choices: set[int]


@dataclass(slots=True)
class _Outbox:
    """Commands since the last message. A cancel takes an unsent submit out again, so that it holds
    no more than the live requests and one cancel for each that was sent."""

    submit: dict[int, GenerateRequest] = field(default_factory=dict)
    cancel: dict[tuple[int, int], None] = field(default_factory=dict)
    settings: Settings | None = None

    def drop(self, request_id: int) -> None:
        """The request is of no interest any more."""
        if self.submit.pop(request_id, None) is None:
            self.cancel[request_id, EVERY_CHOICE] = None

    def take(self) -> Commands | None:
        """Everything as one message; None when there is nothing to say."""
        if not self.submit and not self.cancel and self.settings is None:
            return None
        message = Commands(list(self.submit.values()), list(self.cancel), self.settings)
        self.submit, self.cancel, self.settings = {}, {}, None
        return message


class _Link(asyncio.Protocol):
    """One connection: bytes to frames, and whether the engine takes more bytes now."""

    def __init__(self, on_frame: Callable[[bytes], None], on_writable: Callable[[], None]) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.writable = True
        self._on_frame = on_frame
        self._on_writable = on_writable
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._fault = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        # uvloop's transports do not inherit from asyncio's: no isinstance here.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Every whole frame goes on; a peer that speaks something else is cut off."""
        try:
            for body in self._reader.feed(data):
                self._on_frame(body)
        except WireError as error:
            self.drop(str(error))

    def send(self, data: bytes) -> None:
        """Queue bytes; they leave when the engine reads."""
        if self._transport is not None:
            self._transport.write(data)

    def pause_writing(self) -> None:
        """The engine is slow or stopped: hold back."""
        self.writable = False

    def resume_writing(self) -> None:
        """It reads again."""
        self.writable = True
        self._on_writable()

    def drop(self, why: str) -> None:
        """Cut the connection, whatever is still unsent."""
        self._fault = self._fault or why
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by either side."""
        if not self.lost.done():
            self.lost.set_result(self._fault or (str(exc) if exc else "the engine hung up"))


class EmbeddedBackend:
    """Implements engine.api.Backend over one unix socket. start() it once, aclose() it once.

    The commands of one turn of the event loop leave as one message. On a lost connection every
    sink hears on_lost once, then the watchers on_down; then it tries to connect for ever.
    """

    def __init__(self, socket: Path, clock: Clock, rng: random.Random) -> None:
        self.card: ModelCard | None = None
        self.last_step: StepRecord | None = None
        self._socket = socket
        self._clock = clock
        self._rng = rng
        self._watchers: list[Watcher] = []
        self._open: dict[int, _Open] = {}
        self._outbox = _Outbox()
        self._books = Books()
        self._flushing = False
        self._settings = Settings()  # for a restarted engine
        self._link: _Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._quiet_since = 0.0
        self._complained = ""
        self._wait = FIRST_WAIT

    @property
    def vitals(self) -> Vitals:
        """Whether its count and ours agree; all else is in its steps."""
        return Vitals(drift=self._books.drift, requests=len(self._open))

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of steps, and of the engine's coming and going; before start()."""
        self._watchers.append(watcher)

    def start(self) -> None:
        """Begin to connect, in a task of the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._stay_connected())

    async def aclose(self) -> None:
        """Disconnect and stay so; requests that are still open hear on_lost."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        """Hand over one request; raises BackendDown when there is no engine."""
        if self.card is None:
            raise BackendDown(f"no engine at {self._socket}")
        if not self._open:
            self._quiet_since = self._clock.monotonic()
        self._open[request.request_id] = _Open(sink, set(range(request.n)))
        self._outbox.submit[request.request_id] = request
        self._flush_soon()

    def cancel(self, request_id: int, index: int = EVERY_CHOICE) -> None:
        """Stop one choice or all; unknown ids are ignored."""
        known = self._open.get(request_id)
        if known is None:
            return
        known.choices.discard(index)
        if index == EVERY_CHOICE or not known.choices:
            del self._open[request_id]
            self._outbox.drop(request_id)
        else:
            self._outbox.cancel[request_id, index] = None
        self._flush_soon()

    def apply(self, settings: Settings) -> None:
        """Change the engine's budgets; what is None stays as it was."""
        self._settings = _merged(self._settings, settings)
        if self.card is not None:
            self._outbox.settings = _merged(self._outbox.settings or Settings(), settings)
            self._flush_soon()

    def stalled_for(self, now: float) -> float | None:
        """Seconds without a step while the engine has work, else 0; None while it is away."""
        if self.card is None:
            return None
        return max(0.0, now - self._quiet_since) if self._open else 0.0

    async def _stay_connected(self) -> None:
        while True:
            link = await self._connect()
            if link is not None:
                self._link, why = link, "the sidecar closes"
                try:
                    why = await link.lost
                    self._complain(f"engine lost: {why}")
                finally:
                    link.drop(why)
                    self._down(why)
            await asyncio.sleep(self._wait * self._rng.uniform(0.5, 1.0))
            self._wait = min(2 * self._wait, LONGEST_WAIT)

    async def _connect(self) -> _Link | None:
        link = _Link(self._on_frame, self._flush)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: link, str(self._socket))
        except OSError as error:
            self._complain(f"no engine at {self._socket}: {error.strerror or error}")
            return None
        return link

    def _on_frame(self, body: bytes) -> None:
        message = decode_from_engine(body)
        if isinstance(message, Hello):
            self._up(message)
        elif self.card is None:
            raise WireError("a step came before the hello")
        else:
            self._deliver(message)

    def _up(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            raise WireError(f"the engine speaks protocol {hello.protocol}; ours is {PROTOCOL}")
        log.info("engine %s is up: model %s", hello.card.pid, hello.card.name)
        self.card = hello.card
        self._complained, self._wait = "", FIRST_WAIT
        if self._settings != Settings():
            self._outbox.settings = self._settings
            self._flush_soon()
        for watcher in self._watchers:
            watcher.on_up(hello.card)

    def _down(self, why: str) -> None:
        """Forget the connection and tell everyone."""
        was_up = self.card is not None
        lost = self._open
        self._link = self.card = self.last_step = None
        self._open, self._outbox, self._books = {}, _Outbox(), Books()
        for request in lost.values():
            request.sink.on_lost(why)
        if was_up:
            for watcher in self._watchers:
                watcher.on_down(why)

    def _deliver(self, output: StepOutput) -> None:
        self._quiet_since = self._clock.monotonic()
        self._books.told(output)
        self.last_step = output.record or self.last_step
        for started in output.started:
            if (request := self._open.get(started.request_id)) is not None:
                request.sink.on_started(started)
        for request_id, what in output.moved:
            if (request := self._open.get(request_id)) is not None:
                request.sink.on_moved(what)
        for tokens in output.tokens:
            self._deliver_tokens(tokens)
        for watcher in self._watchers:
            watcher.on_step(output)

    def _deliver_tokens(self, tokens: Tokens) -> None:
        request = self._open.get(tokens.request_id)
        if request is None or tokens.index not in request.choices:
            return  # cancelled while they were on their way
        if tokens.finish is not None:
            request.choices.discard(tokens.index)
            if not request.choices:
                del self._open[tokens.request_id]
        request.sink.on_tokens(tokens)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._link is None or not self._link.writable:
            return
        if (message := self._outbox.take()) is not None:
            self._books.sent(message)
            self._link.send(encode(message))

    def _complain(self, what: str) -> None:
        """Log a trouble once, not at every attempt."""
        if what != self._complained:
            self._complained = what
            log.warning("%s", what)


def _merged(old: Settings, new: Settings) -> Settings:
    """`new` where it says something, else `old`."""
    changes = {
        name: value for name, value in msgspec.structs.asdict(new).items() if value is not None
    }
    return msgspec.structs.replace(old, **changes)
