"""One inference request, from its headers to the desk: every ticket ends exactly once."""

import asyncio
import logging
from collections.abc import Container, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from surgetank.admission.api import Call, Desk
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Exchange, Handler
from surgetank.admission.doors.http.order import Order, Route
from surgetank.admission.outcome import Refusal, Refused
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Outcome, Reason

log = logging.getLogger(__name__)


ModelT = TypeVar("ModelT")
AskT = TypeVar("AskT")
ListenerT = TypeVar("ListenerT")


@dataclass(frozen=True)
class Tools(Generic[ModelT, AskT, ListenerT]):
    """What every inference request needs."""

    config: HttpConfig
    desk: Desk[ModelT, AskT, ListenerT]
    clock: Clock
    executor: Executor  # for bodies too long for the event loop


class InferenceRoutes(Protocol):
    """The paths that ask an engine for something, and who answers there."""

    @property
    def paths(self) -> Container[str]:
        """All of them."""

    @property
    def methods(self) -> Sequence[str]:
        """By which they are asked."""

    def open(self, exchange: Exchange) -> Handler:
        """The handler for a request to one of them, its head being complete."""

    def close(self) -> None:
        """End the threads; what they still compute is dropped."""


class Inference(Generic[ModelT, AskT, ListenerT]):
    """Headers -> ticket -> body -> order -> model -> token ids -> desk.

    The ticket is the door's to end until submit() was called, and the desk's from then on.
    """

    vital: ClassVar[bool] = False

    def __init__(
        self,
        exchange: Exchange,
        tools: Tools[ModelT, AskT, ListenerT],
        route: Route[ModelT, AskT, ListenerT],
    ) -> None:
        self._exchange = exchange
        self._tools = tools
        self._route = route
        self._ticket = tools.desk.arrive("http", exchange.head.headers, exchange.peer)
        self._ticket.route = exchange.head.path
        exchange.named = self._ticket.id
        self._ours = True  # the ticket is still ours to end
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def barred(self) -> Refusal | None:
        return self._ticket.barred

    def on_body(self, body: bytes) -> None:
        if len(body) > self._tools.config.inline_body_bytes:
            self._task = asyncio.get_running_loop().create_task(self._serve_long(body))
            return
        try:
            order = self._route.read(body, self._tools.config)
            served = self._tools.desk.find(order.model)
            self._submit(order, served, order.ask(served))
        except Refused as refused:
            self.on_refuse(refused.refusal)
        except Exception:
            self._on_bug()

    def on_refuse(self, refusal: Refusal) -> None:
        if self._ours:
            self._ours = False
            self._exchange.refuse(self._tools.desk.refuse(self._ticket, refusal))
        elif self._call is not None:
            self._call.cancel(refusal.outcome, refusal.reason)

    def on_gone(self, reason: Reason) -> None:
        if self._ours:
            self._ours = False
            refusal = Refusal(Outcome.CANCELLED, reason, "the client went away")
            self._tools.desk.refuse(self._ticket, refusal)
        elif self._call is not None:
            self._call.cancel(Outcome.CANCELLED, reason)

    async def _serve_long(self, body: bytes) -> None:
        """The same as on_body, with the slow parts in a thread. Cancelled by nobody: a client that
        leaves meanwhile has its ticket ended by on_gone."""
        loop, tools = asyncio.get_running_loop(), self._tools
        try:
            order = await loop.run_in_executor(tools.executor, self._route.read, body, tools.config)
            if not self._ours:
                return
            served = tools.desk.find(order.model)
            ask = await loop.run_in_executor(tools.executor, order.ask, served)
            if self._ours:
                self._submit(order, served, ask)
        except Refused as refused:
            self.on_refuse(refused.refusal)
        except Exception:
            self._on_bug()

    def _submit(self, order: Order[ModelT, AskT, ListenerT], served: ModelT, ask: AskT) -> None:
        exchange, ticket = self._exchange, self._ticket
        exchange.free_body()
        ticket.stream = order.stream
        created = int(self._tools.clock.wall())
        listener = order.listener(exchange, served, ticket.id, created)
        self._ours = False
        try:
            self._call = call = self._tools.desk.submit(ticket, served, ask, listener)
        except Refused as refused:  # the desk has ended the ticket
            exchange.refuse(refused.refusal)
        else:
            if exchange.open:  # else its end has come already
                exchange.on_behind = call.hold

    def _on_bug(self) -> None:
        log.exception("a request failed in the HTTP door", extra=self._ticket.log_fields)
        refusal = Refusal(Outcome.INTERNAL, Reason.BUG, "internal error; see the server's log")
        if self._ours or self._call is not None:
            self.on_refuse(refusal)
        else:  # submit() itself failed: the ticket is the desk's, the client is still ours
            self._exchange.refuse(refusal)
