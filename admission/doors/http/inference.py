"""One inference request, from its headers to the desk: every ticket ends exactly once."""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ClassVar

from surgetank.admission.api import Ask, Call, Desk, Served
from surgetank.admission.doors.http.answers import PlainAnswer, StreamAnswer
from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Exchange
from surgetank.admission.doors.http.order import Order, Route
from surgetank.admission.outcome import Refusal, Refused
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Outcome, Reason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tools:
    """What every inference request needs."""

    config: HttpConfig
    desk: Desk
    clock: Clock
    executor: Executor  # for bodies too long for the event loop


class Inference:
    """Headers -> ticket -> body -> order -> model -> token ids -> desk.

    The ticket is the door's to end until submit() was called, and the desk's from then on.
    """

    vital: ClassVar[bool] = False

    def __init__(self, exchange: Exchange, tools: Tools, route: Route) -> None:
        self._exchange = exchange
        self._tools = tools
        self._route = route
        self._ticket = tools.desk.arrive("http", exchange.head.headers)
        exchange.request_id = self._ticket.id
        self._ours = True  # the ticket is still ours to end
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None

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

    def _submit(self, order: Order, served: Served, ask: Ask) -> None:
        exchange, ticket = self._exchange, self._ticket
        exchange.free_body()
        ticket.stream = order.stream
        created = int(self._tools.clock.wall())
        rendering = self._route.rendering(order, served, ticket.id, created)
        listener = (
            StreamAnswer(exchange, rendering, order.include_usage)
            if order.stream
            else PlainAnswer(exchange, rendering, order.n)
        )
        self._ours = False
        try:
            self._call = self._tools.desk.submit(ticket, served, ask, listener)
        except Refused as refused:  # the desk has ended the ticket
            exchange.refuse(refused.refusal)

    def _on_bug(self) -> None:
        log.exception("request %s failed in the HTTP door", self._ticket.id)
        refusal = Refusal(Outcome.INTERNAL, Reason.BUG, "internal error; see the server's log")
        if self._ours or self._call is not None:
            self.on_refuse(refusal)
        else:  # submit() itself failed: the ticket is the desk's, the client is still ours
            self._exchange.refuse(refusal)
