"""A request that a proxy carries to the engine: asked for here, let go, and followed to its end."""

import logging
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from surgetank.admission import refusals
from surgetank.admission.api import Call, End, Headers
from surgetank.admission.doors.http.relay_routes import ALIAS
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayAsk, RelayDesk, RelayModel
from surgetank.engine.api import BackendDown
from surgetank.engine.backends.remote.api import AnswerHead, AnswerSink, Forward, Usage
from surgetank.telemetry.vocabulary import Outcome, Reason

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Carriage:
    """What all requests that proxies carry share."""

    desk: RelayDesk
    sizes: PromptSizes
    assumed_tokens: int  # of output, where a request does not say


class Order(Protocol):
    """What is asked for."""

    @property
    def model(self) -> str:
        """By any of its names."""

    @property
    def stream(self) -> bool:
        """Whether the answer is to come in parts."""

    def ask(self, served: RelayModel) -> RelayAsk:
        """For the desk; raises Refused."""


@dataclass(frozen=True, slots=True)
class BlindOrder:
    """Implements Order for a request whose body is not seen."""

    path: str
    request_id: str
    prompt_tokens: int
    max_tokens: int
    model: str = ALIAS
    stream: bool = False

    def ask(self, served: RelayModel) -> RelayAsk:
        """The id stands for the body: two requests that are not seen are never the same."""
        forward = Forward(
            path=self.path,
            headers=(("x-request-id", self.request_id),),
            body=self.request_id.encode(),
            prompt_tokens=self.prompt_tokens,
        )
        return RelayAsk(
            forward=forward,
            max_tokens=self.max_tokens,
            n=1,
            exact=False,
            characters=0,
            rewrite=lambda body, most: body,
        )


class CarrierDoor(Protocol):
    """How a door hears of its request. Calls come on the event loop and must not raise."""

    def on_go(self, url: str, request: Forward) -> None:
        """The proxy may bring it to the engine at `url`, as `request` says; at most once."""

    def on_over(self, refusal: Refusal | None) -> None:
        """It is over, well when there is no refusal; exactly once."""


class Carried:
    """One request. Construction is its arrival; it ends exactly once, and gives its slot back then.

    Implements relay.RelayListener, and the engine's Carrier.
    """

    def __init__(
        self,
        carriage: Carriage,
        door: CarrierDoor,
        name: str,
        headers: Headers,
        peer: str,
        path: str,
        *,
        sees_parts: bool = False,
    ) -> None:
        """`name` of the door, and the address of who speaks to it. `sees_parts`: spoke() will tell
        of a stream's tokens as they come; else its silence is no sign of a stall."""
        self.ticket = carriage.desk.arrive(name, headers, peer)
        self.ticket.route = path
        self.gone = False  # it was let go
        self._sees_parts = sees_parts
        self._desk = carriage.desk
        self._door = door
        self._ours = True  # the ticket is still ours to end
        self._call: Call | None = None
        self._sink: AnswerSink | None = None

    # What the door does.

    def ask(self, order: Order) -> None:
        """To the gate. on_go follows, now or later, or on_over with a refusal."""
        if not self._ours:
            return
        self.ticket.stream = order.stream
        try:
            served = self._desk.find(order.model)
            ask = order.ask(served)
            stream = ask.forward.stream and self._sees_parts
            ask = replace(ask, forward=replace(ask.forward, carrier=self, stream=stream))
        except Refused as refused:
            self.refuse(refused.refusal)
            return
        self._ours = False
        try:
            self._call = self._desk.submit(self.ticket, served, ask, self)
        except Refused as refused:  # the desk has ended the ticket
            self._door.on_over(refused.refusal)

    def refuse(self, refusal: Refusal) -> None:
        """It will not go on, by what the door found."""
        if self._ours:
            self._ours = False
            self._door.on_over(self._desk.refuse(self.ticket, refusal))

    def fail(self) -> None:
        """A fault of ours; the log has the traceback."""
        log.exception("a carried request failed", extra=self.ticket.log_fields)
        self.refuse(refusals.fault())

    def answered(self, status: int) -> None:
        """The engine's answer begins; one that is no answer to a request let go ends it."""
        if self._sink is not None:
            self._sink.on_head(AnswerHead(status, ()))
        elif not self.gone:
            self.abandon()

    def spoke(self, events: int) -> None:
        """Events of a stream went by."""
        if self._sink is not None:
            self._sink.on_data(b"", events, False)

    def done(self, usage: Usage | None = None) -> None:
        """The answer is complete; `usage` as it told, None: nobody saw how long it is."""
        if self._sink is not None:
            self._sink.on_done(usage or Usage(output_tokens=0))

    def abandon(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        """Nobody waits for it any more; nothing happens when it has ended."""
        self.refuse(refusals.cancelled(outcome, reason))
        if self._call is not None:
            self._call.cancel(outcome, reason)

    # The engine's Carrier.

    def go(self, url: str, request: Forward, sink: AnswerSink) -> None:
        if self.gone:
            raise BackendDown("what a proxy carries cannot be brought to another engine")
        self.gone, self._sink = True, sink
        self._door.on_go(url, request)

    # RelayListener.

    def on_head(self, head: AnswerHead) -> None:
        """The proxy has it."""

    def on_data(self, data: bytes, between: bool) -> None:
        """The proxy has it."""

    def direct(self) -> None:
        """Never: the proxy has it."""

    def on_end(self, end: End, complete: bool) -> None:
        self._sink = None
        self._door.on_over(end.refusal)
