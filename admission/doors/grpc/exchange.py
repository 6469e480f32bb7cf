"""One request's way from its arrival, through the desk, to its end: the same for all methods."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import grpc

from surgetank.admission.api import Call, Headers
from surgetank.admission.doors.grpc import refusals
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.refusals import Trailers
from surgetank.admission.doors.grpc.statistics import Statistics
from surgetank.admission.doors.grpc.tongue import AnyDesk, Tongue
from surgetank.admission.gateway_signals import FORMAT_HEADER
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


TellLoad = Callable[[str], Trailers]  # how busy we are, in the format that is wanted


def tell_no_load(wanted: str) -> Trailers:
    """Nobody asked."""
    return ()


@dataclass
class Shared:
    """What all requests of one door share."""

    config: GrpcConfig
    desk: AnyDesk
    clock: Clock
    tongue: Tongue
    load: TellLoad = tell_no_load
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

    def header(self, name: str) -> str:
        """The first of that name; "" for none."""
        return next((value for each, value in self.headers if each == name), "")


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


async def on_wire(operation: Awaitable[None]) -> None:
    """Send something. On a dead call: CancelledError, since the call's own is under way."""
    try:
        await operation
    except grpc.aio.BaseError as error:
        raise asyncio.CancelledError from error


async def conclude(
    shared: Shared,
    context: RpcContext,
    caller: Caller,
    refusal: Refusal | None = None,
    request_id: str = "",
) -> None:
    """The end of a call that infers: its status, and our load where that is wanted. Raises out of
    the handler for a refusal."""
    load = shared.load(caller.header(FORMAT_HEADER))
    if refusal is not None:
        await refusals.abort(context, refusal, request_id, load)
    context.set_trailing_metadata(load)


async def in_one(operation: Awaitable[None]) -> None:
    """Send the initial metadata, also when cancelled meanwhile: broken off, they would be sent a
    second time with the status, which grpc refuses."""
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.shield(task)
    finally:
        await task


class Exchange:
    """One request. Construction is its arrival; settle() takes it to its end, exactly once."""

    def __init__(self, shared: Shared, caller: Caller, route: str, request_id: str) -> None:
        """`route`: the method's full name. `request_id`: its message's own; "" for none."""
        self.gone = Reason.CLIENT_GONE  # why, when settle() is cancelled
        self._shared = shared
        self._slack = caller.slack
        self._call: Call | None = None
        headers = _with_id(caller.headers, request_id)
        self.ticket = shared.desk.arrive("grpc", headers, caller.peer)
        self.ticket.route = route
        self._tighten(caller.deadline)

    async def settle(self, serve: Awaitable[Refusal | None]) -> Refusal | None:
        """To the end; None when that is ok. Cancelling the task ends the request."""
        try:
            return await serve
        except Refused as refused:
            return refused.refusal
        except asyncio.CancelledError:
            self._give_up(self._departure())
            raise
        except Exception:
            logger.exception("a request failed in the gRPC door", extra=self.ticket.log_fields)
            self._give_up(BUG)
            return BUG

    def refuse(self, refusal: Refusal) -> Refusal:
        """End the request before the desk took it; returns the refusal with its hint."""
        return self._shared.desk.refuse(self.ticket, refusal)

    def _submit(self, served: Any, ask: Any, listener: Any) -> None:
        self._call = self._shared.desk.submit(self.ticket, served, ask, listener)

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
