"""A request, read, for an engine that takes token ids: OpenAI's routes share this order."""

from collections.abc import Callable
from dataclasses import dataclass

from surgetank.admission.api import Ask, Listener, TextModel
from surgetank.admission.doors.http.answers import PlainAnswer, StreamAnswer
from surgetank.admission.doors.http.exchange import Exchange
from surgetank.admission.doors.http.order import Rendering


@dataclass(frozen=True, slots=True)
class TextOrder:
    """Implements order.Order."""

    model: str
    stream: bool
    include_usage: bool
    n: int
    logprobs: bool
    encode: Callable[[TextModel], Ask]  # tokenises the prompt
    rendering: Callable[["TextOrder", TextModel, str, int], Rendering]

    def ask(self, served: TextModel) -> Ask:
        return self.encode(served)

    def listener(
        self, exchange: Exchange, served: TextModel, request_id: str, created: int
    ) -> Listener:
        rendering = self.rendering(self, served, request_id, created)
        if self.stream:
            return StreamAnswer(exchange, rendering, self.include_usage)
        return PlainAnswer(exchange, rendering, self.n)
