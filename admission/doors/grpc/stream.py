"""ModelStreamInfer: many requests on one call, each with its own responses and its own end."""

import asyncio
from collections.abc import AsyncIterator

from surgetank.admission.doors.grpc import refusals
from surgetank.admission.doors.grpc.exchange import Caller, RpcContext, Shared, on_wire
from surgetank.admission.doors.grpc.infer import Infer
from surgetank.admission.doors.grpc.responder import Responder, error
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Outcome, Reason


class InferStream:
    """One open stream. It ends when the client has half-closed and all its requests have ended."""

    def __init__(self, shared: Shared, context: RpcContext, caller: Caller) -> None:
        self.cut = False  # ended by us because the client reads too slowly
        self._shared = shared
        self._context = context
        self._caller = caller
        self._exchanges: set[Infer] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def run(self, messages: AsyncIterator[bytes]) -> None:
        """Serve the stream; returning, failing or being cancelled leaves no task behind."""
        self._task = asyncio.current_task()
        # Apart from the first message: cancelled together with it, they would be sent twice, and
        # no status could follow.
        await on_wire(self._context.send_initial_metadata(()))
        async with asyncio.TaskGroup() as group:
            self._reading = group.create_task(self._read(messages, group))

    def close(self) -> None:
        """Take no more requests; those in flight go on."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self, messages: AsyncIterator[bytes], group: asyncio.TaskGroup) -> None:
        limit = self._shared.config.max_requests_per_stream
        async for data in messages:
            crowded = len(self._tasks) >= limit
            task = group.create_task(self._serve(data, _full(limit) if crowded else None))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if crowded:  # read no faster than refusals go out
                await asyncio.wait((task,))

    async def _serve(self, data: bytes, refusal: Refusal | None) -> None:
        """One request; `refusal`: the answer it gets unread."""
        exchange = Infer(self._shared, self._caller, data, decoupled=True, slow_reader=self._cut)
        if refusal is not None:
            await self._write_refusal(exchange, exchange.refuse(refusal))
            return
        self._exchanges.add(exchange)
        try:
            refusal = await exchange.run(self._send)
            if refusal is not None:
                await self._write_refusal(exchange, refusal)
            elif exchange.responder is not None and exchange.responder.query.empty_final:
                await self._write(exchange.responder.empty_final())
        finally:
            self._exchanges.discard(exchange)

    async def _send(self, responder: Responder) -> None:
        """What is new, or everything at once for a request that does not stream."""
        if responder.query.stream or responder.complete:
            await self._write(responder.part())

    async def _write_refusal(self, exchange: Infer, refusal: Refusal) -> None:
        """Inside the stream: a status would end the other requests too."""
        pushback = refusals.pushback_ms(refusal, self._context.time_remaining())
        text = refusals.sentence(refusal, exchange.ticket.id, pushback)
        await self._write(error(text, exchange.request.id, exchange.request.model_name))

    async def _write(self, message: bytes) -> None:
        async with self._writing:
            await on_wire(self._context.write(message))

    def _cut(self) -> None:
        """One request's output is not read: all share the connection, so the stream ends."""
        self.cut = True
        for exchange in self._exchanges:
            exchange.gone = Reason.SLOW_READER
        if self._task is not None:
            self._task.cancel()


def _full(limit: int) -> Refusal:
    return Refusal(
        Outcome.OVERLOAD,
        Reason.QUEUE_REQUESTS,
        f"this stream has {limit} requests in flight; allowed: {limit}",
        measured=limit,
        limit=limit,
        limit_name="max_requests_per_stream",
    )
