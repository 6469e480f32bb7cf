"""The HTTP requests of a call, seen below whatever client makes and repeats them.

client = httpx.AsyncClient(transport=Noting(httpx.AsyncHTTPTransport()))
attempts = begin()
...                     # a call, in this task
attempts[-1].status
"""

import asyncio
import contextvars
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from surgetank.admission.client.hints import NOTHING, Hint, read_hint

REASON = "x-surgetank-reason"
_RETRIED = frozenset({408, 409, 429})  # and 5xx: what openai's client retries

_attempts: contextvars.ContextVar[list["Attempt"]] = contextvars.ContextVar("attempts")


@dataclass(slots=True)
class Attempt:
    """One HTTP request of a call. Times by the loop's clock."""

    at: float
    status: int = 0  # nothing came back
    told: float = 0.0  # when the answer's head came
    reason: str = ""  # of a refusal
    hint: Hint = NOTHING


def begin() -> list[Attempt]:
    """A call begins: what this task sends from now on is noted in the list."""
    found: list[Attempt] = []
    _attempts.set(found)
    return found


def retried(status: int) -> bool:
    """Whether clients usually try again after this status."""
    return status in _RETRIED or status >= 500


async def _note_request(request: Any) -> None:
    _attempts.get().append(Attempt(asyncio.get_running_loop().time()))


async def _note_response(response: Any) -> None:
    attempt = _attempts.get()[-1]
    attempt.status, attempt.told = response.status_code, asyncio.get_running_loop().time()
    if attempt.status >= 400:
        attempt.reason = response.headers.get(REASON, f"HTTP {attempt.status}")
        attempt.hint = read_hint(response.headers.items(), time.time())


# For a client that repeats above its transport: openai's, whose HTTP library is not always httpx.
HOOKS: dict[str, list[Callable[..., Any]]] = {
    "request": [_note_request],
    "response": [_note_response],
}


class Noting(httpx.AsyncBaseTransport):
    """For a client whose transport repeats: notes each request below it."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As the transport below answers."""
        await _note_request(request)
        response = await self._inner.handle_async_request(request)
        await _note_response(response)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()
