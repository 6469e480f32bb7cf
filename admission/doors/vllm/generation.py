"""One Generate request, whatever kind of engine serves it; and what such a kind has to offer."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from surgetank.admission.doors.grpc.exchange import (
    Caller,
    Exchange,
    RpcContext,
    Shared,
    conclude,
)
from surgetank.admission.doors.grpc.message import check_id, parsed
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.vocabulary import Outcome, Reason

SERVICE: str = pb.DESCRIPTOR.services_by_name["VllmEngine"].full_name
GENERATE = f"{SERVICE}/Generate"
Send = Callable[[bytes], Awaitable[None]]
Look: TypeAlias = Callable[[], DeskSnapshot]


def served_model(shared: Shared) -> Any:
    """The one that there is: this protocol names none. Raises Refused."""
    names = shared.desk.names()
    return shared.desk.find(names[0] if names else "")


class Generation(Exchange, ABC):
    """One request. `request` is empty where its message could not be read."""

    def __init__(
        self, shared: Shared, caller: Caller, data: bytes, slow_reader: Callable[[], None]
    ) -> None:
        """`slow_reader` hears when its tokens pile up unread."""
        self.request = pb.GenerateRequest()
        self._data = data
        self._unreadable: Refused | None = None
        self._slow_reader = slow_reader
        self._aborted = False
        try:
            request = parsed(pb.GenerateRequest, data, shared.config.max_message_bytes)
            check_id("request_id", request.request_id)
            self.request = request
        except Refused as refused:
            self._unreadable = refused
        super().__init__(shared, caller, GENERATE, self.request.request_id)

    async def run(self, send: Send) -> Refusal | None:
        """To the end; None when that is ok. Cancelling the task ends the request."""
        return await self.settle(self._serve(send))

    async def conclude(self, context: RpcContext, caller: Caller, refusal: Refusal | None) -> None:
        """The call's status; raises out of the handler for a refusal."""
        await conclude(self._shared, context, caller, refusal, self.ticket.id)

    def abort(self) -> None:
        """Its client, by another call, wants no more of it."""
        if self.ticket.outcome is not None:
            return
        self._aborted = True  # and once more when it is submitted, if that is still to come
        if self._call is not None:
            self._call.cancel(Outcome.CANCELLED, Reason.CLIENT_GONE)

    def _check(self) -> None:
        """Raises Refused for who may not ask, and for what cannot be read."""
        if self.ticket.barred is not None:
            raise Refused(self.ticket.barred)
        if self._unreadable is not None:
            raise self._unreadable
        self.ticket.stream = self.request.stream

    @abstractmethod
    async def _serve(self, send: Send) -> Refusal | None:
        """From the reading to the end."""


class Speaker(Protocol):
    """A kind of engine before which this protocol is spoken."""

    def generation(
        self, caller: Caller, data: bytes, slow_reader: Callable[[], None]
    ) -> Generation:
        """A request that just came."""

    def describe(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """What GetModelInfo, GetServerInfo or GetTokenizer answers. Raises Refused."""
