"""The engine protocol before an engine that takes token ids: it is spoken here, for that engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from surgetank.admission.api import Ask, TextModel
from surgetank.admission.doors.grpc.exchange import Caller, Shared
from surgetank.admission.doors.grpc.inbox import Inbox
from surgetank.admission.doors.vllm.answer import Answer
from surgetank.admission.doors.vllm.describe import (
    archive_chunks,
    model_info,
    server_info,
    tokenizer_archive,
)
from surgetank.admission.doors.vllm.generation import Generation, Look, Send, served_model
from surgetank.admission.doors.vllm.order import Order, read_order
from surgetank.admission.outcome import Refusal, Refused
from surgetank.engine.api import ModelCard


class Generate(Generation):
    """One request."""

    async def _serve(self, send: Send) -> Refusal | None:
        try:
            order, served, ask = await self._read()
        except Refused as refused:
            return self.refuse(refused.refusal)
        limit = self._shared.config.max_unread_tokens if order.stream else None
        inbox = Inbox(limit, self._slow_reader)
        self._submit(served, ask, inbox)
        if self._aborted:
            self.abort()
        answer = Answer(self.ticket, ask, stream=order.stream)
        while deltas := await inbox.take():
            await _send_all(send, answer.parts(deltas))
        if self._aborted:
            await _send_all(send, answer.aborted())
            return None
        return inbox.end.refusal if inbox.end else None

    async def _read(self) -> tuple[Order, TextModel, Ask]:
        """Check the request and find its model. Raises Refused."""
        self._check()
        order = read_order(self.request)
        served = served_model(self._shared)
        return order, served, await order.ask(served, self._shared.config.default_max_tokens)


class OwnEngine:
    """Implements generation.Speaker."""

    def __init__(self, shared: Shared, look: Look) -> None:
        self._shared = shared
        self._look = look
        self._born = shared.clock.monotonic()
        self._archive: tuple[ModelCard, bytes] | None = None

    def generation(self, caller: Caller, data: bytes, slow_reader: Callable[[], None]) -> Generate:
        """A request that just came."""
        return Generate(self._shared, caller, data, slow_reader)

    async def describe(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """Out of the model card."""
        served: TextModel = served_model(self._shared)
        match method:
            case "GetModelInfo":
                yield model_info(served).SerializeToString()
            case "GetServerInfo":
                desk, uptime = self._look(), self._shared.clock.monotonic() - self._born
                info = server_info(served.card, uptime, active=desk.in_flight, paused=desk.draining)
                yield info.SerializeToString()
            case _:
                for chunk in archive_chunks(await self._tokenizer(served.card)):
                    yield chunk.SerializeToString()

    async def _tokenizer(self, card: ModelCard) -> bytes:
        """Made once for each engine that comes up."""
        if self._archive is None or self._archive[0] is not card:
            self._archive = card, await asyncio.to_thread(tokenizer_archive, card)
        return self._archive[1]


async def _send_all(send: Send, messages: Iterable[bytes]) -> None:
    for message in messages:
        await send(message)
