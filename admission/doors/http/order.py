"""What a route reads out of a request: which model, which prompt, and how the answer is to look."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from surgetank.admission.api import Delta, End
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Exchange
from surgetank.engine.api import TokenLogprob

ModelT = TypeVar("ModelT", contravariant=True)
AskT = TypeVar("AskT", covariant=True)
ListenerT = TypeVar("ListenerT", covariant=True)


class Order(Protocol[ModelT, AskT, ListenerT]):
    """One request, read."""

    @property
    def model(self) -> str:
        """As the client names it."""

    @property
    def stream(self) -> bool:
        """Whether the answer is to come in parts."""

    def ask(self, served: ModelT) -> AskT:
        """For the desk. May be slow; raises Refused. Safe in any thread."""

    def listener(
        self, exchange: Exchange, served: ModelT, request_id: str, created: int
    ) -> ListenerT:
        """Who writes the answer; `created` in seconds since 1970."""


class Route(Protocol[ModelT, AskT, ListenerT]):
    """One of the inference routes."""

    def read(self, body: bytes, config: HttpConfig) -> Order[ModelT, AskT, ListenerT]:
        """Parse and check a body; Refused when it is not right. Safe in any thread."""


@dataclass(frozen=True, slots=True)
class Choice:
    """All that one choice produced."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob]
    finish: str | None  # OpenAI's word


class Rendering(Protocol):
    """How a route writes its answers."""

    def part(self, delta: Delta) -> bytes:
        """One event of a stream; empty when there is nothing to tell yet."""

    def usage_part(self, end: End) -> bytes:
        """The event that tells the usage."""

    def whole(self, choices: Sequence[Choice], end: End) -> bytes:
        """The answer in one piece."""
