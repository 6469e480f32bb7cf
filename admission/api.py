"""The nouns between a door and the desk: what a door hands in, and what it hears back."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import msgspec

from surgetank.admission.outcome import Refusal
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard, SamplingParams, TokenLogprob
from surgetank.engine.text.codec import TextCodec
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Reason

Headers = Sequence[tuple[str, str]]  # HTTP headers or gRPC metadata, names in lower case


@dataclass(frozen=True, slots=True)
class Ask:
    """A request whose fields were checked: token ids, how to sample, which strings end it."""

    prompt: list[int]
    sampling: SamplingParams
    n: int = 1
    stop: tuple[str, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt)

    @property
    def estimated(self) -> bool:
        return False

    @property
    def max_tokens(self) -> int:
        return self.sampling.max_tokens

    @property
    def exact(self) -> bool:
        return self.sampling.ignore_eos

    @property
    def identity(self) -> bytes:
        settings = msgspec.msgpack.encode((self.n, self.stop, self.sampling))
        return array("q", self.prompt).tobytes() + settings

    def cut(self, most: int) -> "Ask":
        least = min(self.sampling.min_tokens, most)
        sampling = msgspec.structs.replace(self.sampling, max_tokens=most, min_tokens=least)
        return replace(self, sampling=sampling)


@dataclass(slots=True)
class Delta:
    """New output of one choice; `text` is empty while a character or stop string is undecided."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None  # as long as token_ids
    finish: FinishReason | None  # set on the last delta of a choice
    matched: str | None = None  # the stop string that ended it


class End(msgspec.Struct, frozen=True):
    """The one end of a request. `refusal` is set unless the outcome is ok."""

    outcome: Outcome
    refusal: Refusal | None
    prompt_tokens: int
    output_tokens: int  # all choices together
    cached_tokens: int


class Listener(Protocol):
    """How a door hears of its request: on the event loop, in order; it must not block or raise."""

    def on_delta(self, delta: Delta) -> None:
        """New output."""

    def on_end(self, end: End) -> None:
        """Exactly once, after the last delta. Never called when submit() raised."""


class Call(Protocol):
    """A submitted request, as its door holds it."""

    @property
    def ticket(self) -> Ticket:
        """The request's identity and life so far."""

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """End it now: blocks and slot come back, on_end follows. Idempotent."""

    def hold(self, held: bool) -> None:
        """The client does not keep up with reading, or does again."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """A model that can be asked right now, and whose tokens are ours to read and write."""

    name: str
    card: ModelCard
    codec: TextCodec

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)


ModelT = TypeVar("ModelT")
AskT = TypeVar("AskT", contravariant=True)
ListenerT = TypeVar("ListenerT", contravariant=True)


class Desk(Protocol[ModelT, AskT, ListenerT]):
    """What every door talks to. Every arrive() is followed by exactly one refuse() or submit()."""

    def arrive(self, door: str, headers: Headers, peer: str = "") -> Ticket:
        """A request's headers are complete: reads attempt, deadline, tenant, priority and id from
        them, counts it as received. `peer` is the address that sent them. Raises nothing: doubtful
        headers are ignored and counted; a ticket that is `barred` is to be refused so."""

    def barred(self, headers: Headers, peer: str) -> Refusal | None:
        """Why whoever sends these headers may not ask for anything; None: it may."""

    def find(self, model: str) -> ModelT:
        """The model by its name or alias; raises Refused (not_found, backend_down, draining)."""

    def names(self) -> list[str]:
        """Names that find() knows, for /v1/models; the model's own name first."""

    def refuse(self, ticket: Ticket, refusal: Refusal) -> Refusal:
        """End a ticket that never reached the gate; returns the refusal with its hint filled in."""

    def submit(self, ticket: Ticket, served: ModelT, ask: AskT, listener: ListenerT) -> Call:
        """Through the gate into queue or engine. Raises Refused, the ticket then being ended."""

    def ready(self) -> bool:
        """True while a new request would not be refused for draining or a dead engine."""


TextDesk = Desk[TextModel, Ask, Listener]
