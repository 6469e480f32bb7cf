"""Listeners: a request's output as one JSON answer, or as a stream of events."""

from surgetank.admission.api import Delta, End
from surgetank.admission.doors.http.exchange import Exchange
from surgetank.admission.doors.http.order import Choice, Rendering
from surgetank.admission.doors.http.render import DONE, FINISH
from surgetank.engine.api import TokenLogprob
from surgetank.telemetry.vocabulary import FinishReason


class StreamAnswer:
    """Server-sent events, one write for each step's output.

    The status line waits for the first output, so that a request refused in the queue still gets
    its own status; after that, an error is an event.
    """

    def __init__(self, exchange: Exchange, rendering: Rendering, include_usage: bool) -> None:
        self._exchange = exchange
        self._rendering = rendering
        self._include_usage = include_usage
        self._started = False

    def on_delta(self, delta: Delta) -> None:
        data = self._rendering.part(delta)
        if data:
            self._exchange.send_part(data, self._head())

    def on_end(self, end: End) -> None:
        if end.refusal is None:
            usage = self._rendering.usage_part(end) if self._include_usage else b""
            self._exchange.end_stream(usage + DONE, self._head())
        elif self._started:
            exchange = self._exchange
            exchange.end_stream(exchange.words.last_event(end.refusal, exchange.request_id))
        else:
            self._exchange.refuse(end.refusal)

    def _head(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        return self._exchange.start_stream()


class PlainAnswer:
    """One JSON object when all choices are complete."""

    def __init__(self, exchange: Exchange, rendering: Rendering, n: int) -> None:
        self._exchange = exchange
        self._rendering = rendering
        self._choices = [_Growing() for _ in range(n)]

    def on_delta(self, delta: Delta) -> None:
        self._choices[delta.index].add(delta)

    def on_end(self, end: End) -> None:
        if end.refusal is not None:
            self._exchange.refuse(end.refusal)
        elif self._exchange.open:
            choices = [choice.whole() for choice in self._choices]
            self._exchange.respond(200, self._rendering.whole(choices, end))


class _Growing:
    """A choice whose end has not come yet."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._finish: FinishReason | None = None

    def add(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self._token_ids += delta.token_ids
        self._logprobs += delta.logprobs or ()
        self._finish = delta.finish

    def whole(self) -> Choice:
        return Choice(
            "".join(self._texts), self._token_ids, self._logprobs, FINISH.get(self._finish)
        )
