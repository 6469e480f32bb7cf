"""The engine protocol before an engine that speaks it itself: its messages go by as they are."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import grpc

from surgetank.admission import refusals as ends
from surgetank.admission.api import End
from surgetank.admission.doors.grpc.exchange import Caller, RpcContext, Shared
from surgetank.admission.doors.vllm.generation import GENERATE, Generation, Look, Send, served_model
from surgetank.admission.gateway_signals import FORMAT_HEADER
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.prompt_size import PromptSizes
from surgetank.admission.relay import RelayAsk, RelayModel
from surgetank.engine.backends.remote.api import AnswerHead, Forward
from surgetank.engine.backends.remote.grpc_engine import MESSAGE, STATUS
from surgetank.engine.protocols import vllm_engine_pb2 as pb

_UNREAD = 64  # messages that may wait for a slow reader before the engine's are left unread
# Headers that speak of the connection from the client to us.
_NOT_PASSED = frozenset({"user-agent", "te", "content-type", "host", "x-request-id"})
_CODES = {str(code.value[0]): code for code in grpc.StatusCode}
_CLAIMS = ("grpc-", "x-envoy-", "x-smg-", "x-surgetank-")


class Describing(Protocol):
    """An engine that can be asked about itself; engine.backends.remote.grpc_engine.GrpcEngine."""

    def describe(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Its own answer."""


class Messages:
    """Implements relay.RelayListener: keeps messages until the door's task takes them.

    While too many wait, the engine's next ones are held back; a reader who does not catch up in
    time is cut off.
    """

    def __init__(self, cut_off: Callable[[], None], patience: float) -> None:
        """`patience` in seconds."""
        self.head = AnswerHead(200, ())
        self.end: End | None = None
        self.hold: Callable[[bool], None] = lambda held: None  # the engine's messages back
        self._pending: deque[bytes] = deque()
        self._cut_off = cut_off
        self._patience = patience
        self._late: asyncio.TimerHandle | None = None  # while they are held back
        self._news = asyncio.Event()

    def on_head(self, head: AnswerHead) -> None:
        """The engine answers, or refuses in its own words."""
        self.head = head

    def on_data(self, data: bytes, between: bool) -> None:
        """One message."""
        self._pending.append(data)
        self._news.set()
        if self._late is None and len(self._pending) >= _UNREAD:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(self._patience, self._cut_off)
            self.hold(True)

    def direct(self) -> None:
        """Never: all of it is translated."""

    def on_end(self, end: End, complete: bool) -> None:
        """What is pending can still be taken."""
        self.end = end
        self._news.set()

    async def take(self) -> bytes | None:
        """The next message, waiting for it; None once all are taken and it has ended."""
        while not self._pending and self.end is None:
            self._news.clear()
            await self._news.wait()
        message = self._pending.popleft() if self._pending else None
        if self._late is not None and not self._pending:
            self.close()
            self.hold(False)
        return message

    def close(self) -> None:
        """Nobody is waited for any more."""
        if self._late is not None:
            self._late.cancel()
            self._late = None


class RelayedGenerate(Generation):
    """One request."""

    def __init__(
        self,
        shared: Shared,
        caller: Caller,
        data: bytes,
        slow_reader: Callable[[], None],
        sizes: PromptSizes,
    ) -> None:
        super().__init__(shared, caller, data, slow_reader)
        self.told = AnswerHead(200, ())  # how the engine itself ended it
        self._sizes = sizes
        self._headers = passed(caller, self.ticket.id)

    async def _serve(self, send: Send) -> Refusal | None:
        try:
            self._check()
            served: RelayModel = served_model(self._shared)
            ask = self._ask(served)
        except Refused as refused:
            return self.refuse(refused.refusal)
        messages = Messages(self._slow_reader, self._shared.config.catch_up_timeout)
        self._submit(served, ask, messages)
        if self._call is not None:
            messages.hold = self._call.hold
        try:
            while (message := await messages.take()) is not None:
                await send(message)
        finally:
            messages.close()
        self.told = messages.head
        return messages.end.refusal if messages.end else None

    async def conclude(self, context: RpcContext, caller: Caller, refusal: Refusal | None) -> None:
        """What the engine itself refused is said in its own words."""
        code = _CODES.get(self.told.header(STATUS))
        if refusal is None or code is None:
            await super().conclude(context, caller, refusal)
            return
        trailers = [pair for pair in self.told.headers if pair[0] not in (STATUS, MESSAGE)]
        load = self._shared.load(caller.header(FORMAT_HEADER))
        await context.abort(code, self.told.header(MESSAGE), (*trailers, *load))

    def _ask(self, served: RelayModel) -> RelayAsk:
        """Its sizes are read; what it wants is the engine's to understand."""
        request, params = self.request, self.request.sampling_params
        ids, text = len(request.tokenized.input_ids), len(request.text)
        prompt = ids or max(1, self._sizes.tokens(text))
        n = max(1, params.n)
        context = served.card.context_length
        room = max(1, context - prompt) if context else 0  # 0: not known
        assumed = self._shared.config.default_max_tokens
        forward = Forward(
            path=f"/{GENERATE}",
            headers=self._headers,
            body=self._data,
            prompt_tokens=prompt,
            stream=request.stream,
            seqs=n,
            max_tokens=params.max_tokens or room,
        )
        return RelayAsk(
            forward=forward,
            max_tokens=params.max_tokens or min(assumed, room or assumed),
            n=n,
            exact=params.ignore_eos,
            characters=text,
            estimated=text > 0,
            rewrite=shortened,
            beginning=_beginning(request, self._sizes.beginning),
        )


def _beginning(request: pb.GenerateRequest, most: int) -> str:
    """The first characters of its token ids, or of its text."""
    ids = request.tokenized.input_ids[:most]
    return (" ".join(map(str, ids)) or request.text)[:most]


def passed(caller: Caller, request_id: str) -> tuple[tuple[str, str], ...]:
    """The headers that go on, and the request's id."""
    kept = (
        (name, value)
        for name, value in caller.headers
        if name not in _NOT_PASSED
        and not name.startswith(_CLAIMS)
        and (name.endswith("-bin") or (value.isascii() and value.isprintable()))  # else grpc fails
    )
    return (*kept, ("x-request-id", request_id))


def shortened(body: bytes, most: int) -> bytes:
    """The same message with so many output tokens at most; fields that we do not know stay."""
    request = pb.GenerateRequest.FromString(body)
    request.sampling_params.max_tokens = most
    return request.SerializeToString()


class RelayedEngine:
    """Implements generation.Speaker."""

    def __init__(
        self, shared: Shared, look: Look, engines: Sequence[Describing], sizes: PromptSizes
    ) -> None:
        """`engines` in the order in which the desk knows them."""
        self._shared = shared
        self._look = look
        self._engines = engines
        self._sizes = sizes

    def generation(
        self, caller: Caller, data: bytes, slow_reader: Callable[[], None]
    ) -> RelayedGenerate:
        """A request that just came."""
        return RelayedGenerate(self._shared, caller, data, slow_reader, self._sizes)

    async def describe(self, method: str, data: bytes) -> AsyncIterator[bytes]:
        """What the first engine that is there says of itself."""
        served_model(self._shared)
        looks = self._look().engines
        there = [each for each, look in zip(self._engines, looks) if look.card is not None]
        if not there:
            raise Refused(ends.backend_down())
        try:
            async for message in there[0].describe(method, data):
                yield message
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            raise Refused(ends.backend_down(f"{method} is not answered")) from error
