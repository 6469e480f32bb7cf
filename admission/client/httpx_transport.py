"""Transports for httpx clients: retries before the first byte of an answer, and never after it.

    client = httpx.AsyncClient(transport=AsyncRetryTransport(Retrier()))
    openai.AsyncOpenAI(http_client=client, max_retries=0, ...)

A body that can only be read once is sent once. A request that already carries the attempt header,
or that its SDK says it is trying again, passes once: whoever counts owns the retries. A refusal
that is given up on says `x-should-retry: false` upwards, so that no SDK begins anew.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx

from surgetank.admission.client.failures import hint_of
from surgetank.admission.client.hints import Hint
from surgetank.admission.client.retrier import ATTEMPT_HEADER, Retrier

_SDK_COUNT = "x-stainless-retry-count"  # of openai's and anthropic's clients
_READ_AWAY = 65_536  # bytes of a refusal's body that are read to keep the connection


class RetryTransport(httpx.BaseTransport):
    """For httpx.Client. Times as in the Retrier's policy; `sleep` takes seconds."""

    def __init__(
        self,
        retrier: Retrier,
        inner: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retrier = retrier
        self._inner = inner or httpx.HTTPTransport()
        self._sleep = sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The first answer that is no refusal, or the last one."""
        if _owned(request):
            return self._inner.handle_request(request)
        call = self._retrier.begin()
        while True:
            try:
                response = self._inner.handle_request(_numbered(request, call.attempt))
            except httpx.TransportError as error:
                wait = call.next(_hint(error, request, self._retrier))
                if wait is None:
                    raise
            else:
                hint = _hint(response, request, self._retrier)
                wait = call.next(hint)
                if wait is None:
                    return _final(response, hint)
                if _small(response):
                    response.read()
                response.close()
            self._sleep(wait)

    def close(self) -> None:
        self._inner.close()


class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """For httpx.AsyncClient. Times as in the Retrier's policy; `sleep` takes seconds."""

    def __init__(
        self,
        retrier: Retrier,
        inner: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._retrier = retrier
        self._inner = inner or httpx.AsyncHTTPTransport()
        self._sleep = sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The first answer that is no refusal, or the last one."""
        if _owned(request):
            return await self._inner.handle_async_request(request)
        call = self._retrier.begin()
        while True:
            attempt = _numbered(request, call.attempt)
            try:
                response = await self._inner.handle_async_request(attempt)
            except httpx.TransportError as error:
                wait = call.next(_hint(error, request, self._retrier))
                if wait is None:
                    raise
            else:
                hint = _hint(response, request, self._retrier)
                wait = call.next(hint)
                if wait is None:
                    return _final(response, hint)
                if _small(response):
                    await response.aread()
                await response.aclose()
            await self._sleep(wait)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _owned(request: httpx.Request) -> bool:
    """Whether a layer above already counts this request's attempts."""
    return ATTEMPT_HEADER in request.headers or request.headers.get(_SDK_COUNT, "0") != "0"


def _numbered(request: httpx.Request, attempt: int) -> httpx.Request:
    """A copy that states its number: the caller's own request may be sent again later."""
    return httpx.Request(
        request.method,
        request.url,
        headers=[*request.headers.raw, (ATTEMPT_HEADER.encode(), str(attempt).encode())],
        stream=request.stream,
        extensions=request.extensions,
    )


def _hint(result: object, request: httpx.Request, retrier: Retrier) -> Hint | None:
    """The hint in an answer or a failure; None when the request is not to be repeated."""
    replayable = isinstance(request.stream, httpx.ByteStream)
    return hint_of(result, retrier.clock.wall()) if replayable else None


def _small(response: httpx.Response) -> bool:
    length = response.headers.get("content-length", "")
    return length.isdigit() and int(length) <= _READ_AWAY


def _final(response: httpx.Response, hint: Hint | None) -> httpx.Response:
    if hint is not None:
        response.headers["x-should-retry"] = "false"
    return response
