"""One route's request, read: which model, which prompt, and how the answer is to look."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from surgetank.admission.api import Ask, Delta, End, Served
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.engine.api import TokenLogprob


@dataclass(frozen=True, slots=True)
class Order:
    """What a route read out of a body."""

    model: str
    stream: bool
    include_usage: bool
    n: int
    logprobs: bool
    ask: Callable[[Served], Ask]  # tokenises the prompt: may be slow; raises Refused


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


class Route(Protocol):
    """One of OpenAI's inference routes."""

    def read(self, body: bytes, config: HttpConfig) -> Order:
        """Parse and check a body; Refused when it is not right. Safe in any thread."""

    def rendering(self, order: Order, served: Served, request_id: str, created: int) -> Rendering:
        """A writer for this request's answer."""
