"""One ModelInfer request's way from its message to its end: the same for both methods."""

from collections.abc import Awaitable, Callable
from typing import Any

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.exchange import Caller, Exchange, Shared
from surgetank.admission.doors.grpc.inbox import Inbox
from surgetank.admission.doors.grpc.query import Query, parse, read_query
from surgetank.admission.doors.grpc.responder import Responder
from surgetank.admission.doors.grpc.statistics import ModelCounts
from surgetank.admission.outcome import Refusal, Refused

Send = Callable[[Responder], Awaitable[None]]  # called each time something new was added


def method(*, decoupled: bool) -> str:
    """The full name of the method that infers, with many responses or with one."""
    service: str = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
    return f"{service}/{'ModelStreamInfer' if decoupled else 'ModelInfer'}"


class Infer(Exchange):
    """One request."""

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
        self._decoupled = decoupled
        self._slow_reader = slow_reader
        self._counts: ModelCounts | None = None
        self._unreadable: Refused | None = None
        self.responder: Responder | None = None
        try:
            self.request = parse(data, shared.config.max_message_bytes)
        except Refused as refused:
            self.request, self._unreadable = pb.ModelInferRequest(), refused
        super().__init__(shared, caller, method(decoupled=decoupled), self.request.id)

    async def run(self, send: Send) -> Refusal | None:
        """To the end; None when that is ok. Cancelling the task ends the request."""
        ok = False
        try:
            refusal = await self.settle(self._serve(send))
            ok = refusal is None
            return refusal
        finally:
            if self._counts is not None:
                clock = self._shared.clock
                self._counts.record(self.ticket, ok, clock.monotonic(), clock.wall())

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
        self._submit(served, ask, listener)
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
