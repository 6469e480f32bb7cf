"""One request's way from its message, through the desk, to its end: the same for both methods."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import grpc

from surgetank.admission.api import Call, Headers
from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.inbox import Inbox
from surgetank.admission.doors.grpc.query import Query, parse, read_query
from surgetank.admission.doors.grpc.responder import Responder
from surgetank.admission.doors.grpc.statistics import ModelCounts, Statistics
from surgetank.admission.doors.grpc.tongue import AnyDesk, Tongue
from surgetank.admission.outcome import Refusal, Refused
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Outcome, Reason

logger = logging.getLogger(__name__)

# A client gives up at its own deadline, which comes before the one that we see: a timeout is
# rounded up on the wire, by up to a hundredth (gRPC core's timeout_encoding).
ROUNDING = 0.01
SLACK = 0.005  # seconds

BUG = Refusal(Outcome.INTERNAL, Reason.BUG, "internal error; the server's log says more")

RpcContext = grpc.aio.ServicerContext[Any, Any]
Send = Callable[[Responder], Awaitable[None]]  # called each time something new was added


@dataclass
class Shared:
    """What all requests of one door share."""

    config: GrpcConfig
    desk: AnyDesk
    clock: Clock
    tongue: Tongue
    statistics: Statistics = field(default_factory=Statistics)
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # the door is being shut

    def ready(self) -> bool:
        """Whether a request that came now would be taken."""
        return self.desk.ready() and not self.closing.is_set()


@dataclass(frozen=True)
class Caller:
    """What a call says of its requests: its headers, and its deadline on the door's clock."""

    headers: Headers
    peer: str  # its address; "" where it has none
    deadline: float | None
    slack: float  # seconds before the deadline in which a cancel means that it passed


def caller_of(context: RpcContext, clock: Clock) -> Caller:
    """Read a call. grpc takes `grpc-timeout` out of the headers, so the deadline comes apart."""
    metadata = context.invocation_metadata() or ()
    headers = [(name, value) for name, value in metadata if isinstance(value, str)]
    left = context.time_remaining()
    deadline = None if left is None else clock.monotonic() + left
    peer = address(context.peer())
    return Caller(headers, peer, deadline, SLACK + ROUNDING * (left or 0.0))


def address(peer: str) -> str:
    """The address in grpc's `ipv4:10.0.0.1:50051` or `ipv6:%5B::1%5D:50051`."""
    family, _, rest = peer.partition(":")
    return unquote(rest.rpartition(":")[0]).strip("[]") if family in ("ipv4", "ipv6") else ""


def method(*, decoupled: bool) -> str:
    """The full name of the method that infers, with many responses or with one."""
    service: str = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
    return f"{service}/{'ModelStreamInfer' if decoupled else 'ModelInfer'}"


async def on_wire(operation: Awaitable[None]) -> None:
    """Send something. On a dead call: CancelledError, since the call's own is under way."""
    try:
        await operation
    except grpc.aio.BaseError as error:
        raise asyncio.CancelledError from error


class Exchange:
    """One request. Construction is its arrival; run() takes it to its end, exactly once."""

    def __init__(
        self,
        shared: Shared,
        caller: Caller,
        data: bytes,
        *,
        decoupled: bool,
        slow_reader: Callable[[], None] = lambda: None,
    ) -> None:
        """`decoupled`: many responses are possible. `slow_reader` hears when they pile up."""
        self._shared = shared
        self._decoupled = decoupled
        self._slow_reader = slow_reader
        self._slack = caller.slack
        self._call: Call | None = None
        self._counts: ModelCounts | None = None
        self._unreadable: Refused | None = None
        try:
            self.request = parse(data, shared.config.max_message_bytes)
        except Refused as refused:
            self.request, self._unreadable = pb.ModelInferRequest(), refused
        self.responder: Responder | None = None
        self.gone = Reason.CLIENT_GONE  # why, when run() is cancelled
        headers = _with_id(caller.headers, self.request.id)
        self.ticket = shared.desk.arrive("grpc", headers, caller.peer)
        self.ticket.route = method(decoupled=decoupled)
        self._tighten(caller.deadline)

    async def run(self, send: Send) -> Refusal | None:
        """To the end; None when that is ok. Cancelling the task ends the request."""
        refusal: Refusal | None = BUG
        try:
            refusal = await self._serve(send)
        except Refused as refused:
            refusal = refused.refusal
        except asyncio.CancelledError:
            self._give_up(self._departure())
            raise
        except Exception:
            logger.exception("a request failed in the gRPC door", extra=self.ticket.log_fields)
            self._give_up(BUG)
        finally:
            if self._counts is not None:
                clock = self._shared.clock
                self._counts.record(self.ticket, refusal is None, clock.monotonic(), clock.wall())
        return refusal

    def refuse(self, refusal: Refusal) -> Refusal:
        """End the request before the desk took it; returns the refusal with its hint."""
        return self._shared.desk.refuse(self.ticket, refusal)

    async def _serve(self, send: Send) -> Refusal | None:
        try:
            query, served, ask = await self._read()
        except Refused as refused:
            return self.refuse(refused.refusal)
        tongue = self._shared.tongue
        self.responder = responder = tongue.responder(query, served, ask)
        limit = self._shared.config.max_unread_tokens if query.stream else None
        inbox = Inbox(limit, self._slow_reader)
        listener = tongue.listener(query, inbox)
        self._call = self._shared.desk.submit(self.ticket, served, ask, listener)
        while deltas := await inbox.take():
            responder.add(deltas)
            await send(responder)
        return inbox.end.refusal if inbox.end else None

    async def _read(self) -> tuple[Query, Any, Any]:
        """Check the request and find its model. Raises Refused."""
        if self.ticket.barred is not None:
            raise Refused(self.ticket.barred)
        if self._unreadable is not None:
            raise self._unreadable
        query = read_query(self.request, decoupled=self._decoupled)
        self.ticket.stream = query.stream
        if query.priority is not None:  # a client may lower its class, never raise it
            self.ticket.lower(query.priority)
        if query.timeout is not None:
            self._tighten(self.ticket.arrived + query.timeout)
        served = self._shared.desk.find(query.model)
        self._counts = self._shared.statistics.of(served.name)
        return query, served, await self._shared.tongue.ask(query, served, self.ticket.id)

    def _tighten(self, deadline: float | None) -> None:
        deadlines = [d for d in (self.ticket.deadline, deadline) if d is not None]
        self.ticket.deadline = min(deadlines, default=None)

    def _departure(self) -> Refusal:
        """Why run() was cancelled: the client left, its deadline passed, or we shut the door."""
        left = self.ticket.time_left(self._shared.clock.monotonic())
        if self.gone is Reason.CLIENT_GONE and left is not None and left <= self._slack:
            if self.ticket.dispatched_at is None:
                message = "the deadline passed before the engine began"
                return Refusal(Outcome.EXPIRED, Reason.DEADLINE_IN_QUEUE, message)
            message = "the deadline passed while decoding"
            return Refusal(Outcome.DEADLINE, Reason.DEADLINE_IN_DECODE, message)
        if self._shared.closing.is_set():
            return Refusal(Outcome.DRAINING, Reason.OPERATOR, "the server was shut down")
        return Refusal(Outcome.CANCELLED, self.gone, "the client is gone or does not read")

    def _give_up(self, refusal: Refusal) -> None:
        """End the request from our side, wherever it is; nothing when it has ended."""
        if self._call is not None:
            self._call.cancel(refusal.outcome, refusal.reason)
        elif self.ticket.outcome is None:
            self.refuse(refusal)


def _with_id(headers: Headers, request_id: str) -> Headers:
    """On a stream all requests share the call's headers; each one's own id tells them apart."""
    if not request_id:
        return headers
    others = [(name, value) for name, value in headers if name != "x-request-id"]
    return [*others, ("x-request-id", request_id)]
