"""Admitted work, whatever kind of engine does it: what the desk and the dispatcher need of it."""

from collections.abc import Hashable, Sequence
from typing import Protocol, Self, TypeVar

from surgetank.admission.outcome import Refusal
from surgetank.admission.permit import Permit
from surgetank.admission.routing.side import Attached, EngineSide
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import Outcome, Reason


class Demand(Protocol):
    """What is asked for, as far as the gate must know it."""

    @property
    def prompt_tokens(self) -> int:
        """Exact where the tokenizer is known, else an estimate."""

    @property
    def estimated(self) -> bool:
        """Whether prompt_tokens is."""

    @property
    def max_tokens(self) -> int:
        """The most that a choice may get."""

    @property
    def n(self) -> int:
        """Choices."""

    @property
    def exact(self) -> bool:
        """Whether each choice will get all of max_tokens."""

    @property
    def identity(self) -> bytes:
        """The same for two attempts at the same thing, different for different things."""

    def cut(self, most: int) -> Self:
        """The same with at most so many output tokens."""


class Work(Hashable, Protocol):
    """One admitted request, from the queue to its one end."""

    request_id: int | None  # set while the engine knows of it
    permit: Permit | None
    side: EngineSide | None  # the engine that has it, or had it last

    @property
    def ticket(self) -> Ticket:
        """The request's identity and life so far."""

    @property
    def finished(self) -> bool:
        """The engine has nothing left to do for it."""

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """End it now; nothing happens when it has ended."""

    def hold(self, held: bool) -> None:
        """The client does not keep up with reading, or does again."""

    def start(self, request_id: int, time_left: float | None, at: int) -> None:
        """Hand it to the engine at that place of its adapter's. Raises BackendDown."""

    def stop(self) -> None:
        """The engine need not go on with it."""

    def record_latencies(self) -> None:
        """It ended well: tell how long it took."""

    def tell_end(self, refusal: Refusal | None) -> None:
        """Let its door know; called once, by the desk."""


class Owner(Protocol):
    """What work needs of its desk."""

    @property
    def recorder(self) -> Recorder:
        """Where facts are told."""

    def now(self) -> float:
        """The injected clock's monotonic seconds."""

    def end(self, work: Work, refusal: Refusal | None) -> None:
        """End it, ok when there is no refusal. Only the first end counts."""

    def turned_away(self, work: Work, refusal: Refusal) -> None:
        """Its engine was lost or does not take it, and its client has heard nothing: it goes to
        another engine, or ends so."""

    def heard(self, work: Work) -> None:
        """Its client has its first token: a read timeout no longer counts."""

    def look_again(self) -> None:
        """What held others back may be gone, and no step tells of it."""

    def outgrew(self, work: Work, tokens: int, new: int) -> None:
        """A choice has `tokens` tokens, `new` of them just now: more than was expected of it."""


class Served(Protocol):
    """A model that can be asked right now."""

    @property
    def name(self) -> str:
        """As the engine calls it."""

    @property
    def names(self) -> Sequence[str]:
        """All that the engine answers to, `name` first."""

    @property
    def card(self) -> ModelCard:
        """Its sizes."""


ModelT = TypeVar("ModelT", bound=Served)
AskT = TypeVar("AskT", bound=Demand)
ListenerT = TypeVar("ListenerT")
_AskT = TypeVar("_AskT", bound=Demand, contravariant=True)
_ListenerT = TypeVar("_ListenerT", contravariant=True)


class Adapter(Protocol[ModelT, _AskT, _ListenerT]):
    """One kind of engines: how their model is served, and how work is handed to them."""

    @property
    def engines(self) -> Sequence[Attached]:
        """All that there are; work names them by their place."""

    def serve(self, card: ModelCard, known: ModelT | None) -> ModelT:
        """An engine came or went; `known` was served before, and `card` has the sizes of the
        largest that is there. Raises ValueError when it cannot be."""

    def open(
        self, owner: Owner, ticket: Ticket, served: ModelT, ask: _AskT, listener: _ListenerT
    ) -> Work:
        """The work that a request makes. Raises Refused, or ValueError for what cannot be."""
