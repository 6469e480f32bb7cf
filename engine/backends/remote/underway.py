"""A request under way to an engine: the connection that carries it, and what is heard of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from surgetank.engine.backends.remote.api import AnswerHead, AnswerSink, Forward, Usage


class Line(Protocol):
    """Carries one request, and its answer back."""

    used: bool  # by a request before
    heard: bool  # of the running request, anything has come back

    def send(self, request: Forward, sink: "Underway") -> None:
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


class Hears(Protocol):
    """Who follows the requests that are under way."""

    def answered(self, head: AnswerHead) -> None:
        """An answer begins."""

    def spoke(self, request_id: int, events: int) -> None:
        """Events of a stream came."""

    def done(self, entry: "Underway", usage: Usage) -> None:
        """An answer is complete."""

    def lost(self, entry: "Underway", detail: str, begun: bool) -> None:
        """Its connection broke."""


@dataclass(slots=True, eq=False)
class Underway:
    """One request on its way: the sink that its connection knows."""

    backend: "Hears"
    request_id: int
    request: Forward
    sink: AnswerSink
    connection: Line | None = None  # None: being made
    reused: bool = False
    begun: bool = False  # the engine may have worked on it
    sent_at: float = 0.0

    def on_head(self, head: AnswerHead) -> None:
        self.backend.answered(head)
        self.sink.on_head(head)

    def on_data(self, data: bytes, events: int, between: bool) -> None:
        self.sink.on_data(data, events, between)
        if events:
            self.backend.spoke(self.request_id, events)

    def direct(self) -> Callable[[bytes], None] | None:
        return self.sink.direct()

    def on_events(self, events: int, now: float) -> None:
        self.sink.on_events(events, now)

    def on_done(self, usage: Usage) -> None:
        self.backend.done(self, usage)

    def on_lost(self, detail: str, begun: bool = True) -> None:
        self.backend.lost(self, detail, begun)
