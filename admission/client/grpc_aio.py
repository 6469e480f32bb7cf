"""Interceptors for grpc.aio clients: retries, hints and the attempt's number.

    channel = grpc.aio.insecure_channel(
        target, interceptors=aio_interceptors(Retrier()), options=[("grpc.enable_retries", 0)]
    )

Calls with one request are retried, a stream of answers only while none has come; calls that stream
their requests pass unchanged, since those cannot be said twice. A call that already carries the
attempt header passes unchanged too: whoever set it owns the retries. Do not add a service config's
retries to these.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
from grpc import aio

from surgetank.admission.client.failures import hint_of
from surgetank.admission.client.retrier import ATTEMPT_HEADER, Call, Retrier

_END: Any = object()  # in place of a first answer, when there is none
Sleep = Callable[[float], Awaitable[None]]
Continuation = Callable[[Any, Any], Any]  # grpc's own; the stubs describe it without its await


def aio_interceptors(retrier: Retrier, sleep: Sleep = asyncio.sleep) -> Sequence[Any]:
    """What to hand to `grpc.aio.insecure_channel(interceptors=...)`."""
    return [RetryUnary(retrier, sleep), RetryStream(retrier, sleep)]


class RetryUnary(aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    """One request, one answer."""

    def __init__(self, retrier: Retrier, sleep: Sleep = asyncio.sleep) -> None:
        self._retrier = retrier
        self._sleep = sleep

    async def intercept_unary_unary(
        self, continuation: Continuation, client_call_details: Any, request: Any
    ) -> Any:
        """The call that succeeded, or the last that failed."""
        if owned(client_call_details):
            return await continuation(client_call_details, request)
        mine = self._retrier.begin(client_call_details.timeout)
        while True:
            call = await continuation(numbered(client_call_details, mine), request)
            try:
                await call
                return call
            except grpc.aio.AioRpcError as error:
                wait = mine.next(hint_of(error, self._retrier.clock.wall()))
            if wait is None:
                return call
            await self._sleep(wait)


class RetryStream(aio.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    """One request, many answers. The call object is there once the first answer is."""

    def __init__(self, retrier: Retrier, sleep: Sleep = asyncio.sleep) -> None:
        self._retrier = retrier
        self._sleep = sleep

    async def intercept_unary_stream(
        self, continuation: Continuation, client_call_details: Any, request: Any
    ) -> Any:
        """The answers of the first attempt that gave any, or the last attempt's error."""
        if owned(client_call_details):
            return await continuation(client_call_details, request)
        mine = self._retrier.begin(client_call_details.timeout)
        while True:
            call = await continuation(numbered(client_call_details, mine), request)
            answers = aiter(call)
            try:
                first = await anext(answers, _END)
                return _resumed(first, answers)
            except grpc.aio.AioRpcError as error:
                wait = mine.next(hint_of(error, self._retrier.clock.wall()))
                if wait is None:
                    return _failed(error)
            await self._sleep(wait)


def owned(details: Any) -> bool:
    """Whether a layer above already counts this call's attempts."""
    return any(name.lower() == ATTEMPT_HEADER for name, _ in details.metadata or ())


def numbered(details: Any, call: Call) -> aio.ClientCallDetails:
    """The attempt's own details: its number, and the time that is left of the call's."""
    metadata = aio.Metadata(*(details.metadata or ()), (ATTEMPT_HEADER, str(call.attempt)))
    return aio.ClientCallDetails(
        details.method,
        details.timeout if details.timeout is None else call.time_left(),
        metadata,
        details.credentials,
        details.wait_for_ready,
    )


async def _resumed(first: Any, answers: AsyncIterator[Any]) -> AsyncIterator[Any]:
    if first is not _END:
        yield first
        async for answer in answers:
            yield answer


async def _failed(error: grpc.aio.AioRpcError) -> AsyncIterator[Any]:
    raise error
    yield  # makes this a stream, one that fails when it is read
