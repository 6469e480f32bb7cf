"""The nouns between the gate and an engine that speaks HTTP: what is forwarded, what comes back."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from surgetank.engine.api import Engine
from surgetank.engine.backends.remote.found import Vitals

PUSHBACK = frozenset({429, 503, 529})  # an engine's way to say that it is full


class Forward(msgspec.Struct, frozen=True):
    """One request as it goes to the engine. Its answer comes back byte for byte."""

    path: str
    headers: tuple[tuple[str, str], ...]  # names in lower case; hop-by-hop ones are left out
    body: bytes
    prompt_tokens: int  # an estimate, unless the tokenizer is known
    stream: bool = False  # its answer tells of each token as it comes
    http_1_0: bool = False  # the client's version: it cannot read chunks
    seqs: int = 1  # choices
    max_tokens: int = 0  # that the engine gives a choice at most; 0: not known
    carrier: "Carrier | None" = None  # who brings it to the engine; None: we do


class AnswerHead(msgspec.Struct, frozen=True):
    """The status line and headers of an answer."""

    status: int
    headers: tuple[tuple[str, str], ...]  # names in lower case

    def header(self, name: str) -> str:
        """The first header of that name, or ""."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""


class Usage(msgspec.Struct, frozen=True):
    """What an answer says of its own size, tokens. None: it says nothing of it."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


class AnswerSink(Protocol):
    """Where one answer goes. Calls come on the event loop, in order; after on_done or on_lost,
    and after cancel(), nothing more."""

    def on_head(self, head: AnswerHead) -> None:
        """The engine answers."""

    def on_data(self, data: bytes, events: int, between: bool) -> None:
        """Bytes of the body as they came, framing included; `events` of a stream began in them.
        `between`: they end between two chunks."""

    def direct(self) -> Callable[[bytes], None] | None:
        """Where whole chunks may be written past on_data(), which stands between two, until hold();
        on_events() hears of them then. None: on_data() has to see what comes next."""

    def on_events(self, events: int, now: float) -> None:
        """So many of a stream began in chunks that were written directly, at `now`."""

    def on_done(self, usage: Usage) -> None:
        """The answer is complete."""

    def on_lost(self, detail: str, begun: bool = True) -> None:
        """The connection broke: nothing more will come. `begun`: the engine may have worked on it;
        else it never got it."""


class Carrier(Protocol):
    """Somebody else, such as a proxy, brings a request to the engine and its answer back."""

    def go(self, url: str, request: Forward, sink: AnswerSink) -> None:
        """Bring it to the engine at `url`, at once, and tell `sink`, once this has returned, what
        is seen of the answer: all or a part, but its one end. Raises BackendDown when called again:
        it cannot be brought anywhere else."""


class Remote(Engine, Protocol):
    """An engine that takes whole HTTP requests. Nothing blocks; failures arrive by the sink."""

    @property
    def models(self) -> tuple[str, ...]:
        """Every name that it answers to; none while it is not there."""

    @property
    def vitals(self) -> Vitals:
        """What it tells of itself, now."""

    def forward(self, request_id: int, request: Forward, sink: AnswerSink) -> None:
        """Send one request. Raises BackendDown when there is no engine."""

    def cancel(self, request_id: int) -> Usage | None:
        """Hang up, which is how such engines are told to stop. Unknown ids are ignored. Returns
        what a stream said of itself whose last event had come: but for its framing it was whole."""

    def hold(self, request_id: int, held: bool) -> None:
        """The client does not keep up: read no further for now, or go on. Unknown ids ignored."""
