"""The plain HTTP clients of a run, ours and the lab's behaviours; what every client is told."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import orjson

from surgetank.admission.client.httpx_transport import AsyncRetryTransport
from surgetank.admission.client.retrier import ATTEMPT_HEADER, Retrier
from surgetank.control.bench.load.attempts import HOOKS, Attempt, Noting, begin, retried
from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.rows import Answer
from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour

_SHIPPED = BEHAVIOURS["obedient"].model_copy(update={"name": "httpx", "tells_timeout": False})
_ADVICE = ("grpc-retry-pushback-ms", "retry-after", "retry-after-ms", "x-should-retry")
_UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None)


class Client(Protocol):
    """Makes calls, and lets its library repeat them as it will."""

    async def ask(self, call: Call, prompt: str) -> Answer:
        """One call to its end; whatever goes wrong is in the answer."""

    async def close(self) -> None:
        """Close its connections."""


@dataclass(frozen=True, slots=True)
class Server:
    """What is asked, and how: found out before the run."""

    base_url: str  # with /v1
    model: str
    api_key: str
    chat: bool
    extras: tuple[str, ...]  # fields beyond OpenAI's that it takes

    @property
    def path(self) -> str:
        """Below the base URL."""
        return "/chat/completions" if self.chat else "/completions"

    def fields(self, prompt: str, tokens: int) -> dict[str, Any]:
        """A request for a stream of exactly so many tokens, where the server allows to ask that."""
        said: dict[str, Any] = {"model": self.model, "max_tokens": tokens, "temperature": 0}
        if self.chat:
            said["messages"] = [{"role": "user", "content": prompt}]
        else:
            said["prompt"] = prompt
        return {**said, "stream": True, "stream_options": {"include_usage": True}}

    def more(self, tokens: int) -> dict[str, Any]:
        """The extra fields of that request."""
        values = {"ignore_eos": True, "min_tokens": tokens}
        return {name: values[name] for name in self.extras}


class Deaf(httpx.AsyncBaseTransport):
    """What keeps a server's advice from the client above, as some proxies do."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As the transport below answers, without the advice."""
        response = await self._inner.handle_async_request(request)
        for name in _ADVICE:
            response.headers.pop(name, None)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class Plain:
    """httpx, with our transport's retries, or as one of the lab's behaviours: by our transport,
    too, where they leave it to that."""

    def __init__(
        self, server: Server, timeout: float, behaviour: Behaviour | None, rng: random.Random
    ) -> None:
        transport: httpx.AsyncBaseTransport = httpx.AsyncHTTPTransport(limits=_UNLIMITED)
        self._behaviour = behaviour or _SHIPPED
        self._repeats_below = self._behaviour.wait == "helper"
        if self._repeats_below:
            noting = Noting(transport)
            below = noting if self._behaviour.obeys else Deaf(noting)
            transport = AsyncRetryTransport(Retrier(self._behaviour.policy(), rng=rng), below)
        self._server = server
        self._rng = rng
        self._client = httpx.AsyncClient(
            transport=transport,
            event_hooks={} if self._repeats_below else HOOKS,
            headers={"authorization": f"Bearer {server.api_key}"},
            timeout=None if self._behaviour.timeout is None else timeout,
        )

    async def ask(self, call: Call, prompt: str) -> Answer:
        """Streamed."""
        answer = Answer(attempts=begin())
        fields = self._server.fields(prompt, call.output) | self._server.more(call.output)
        body = orjson.dumps(fields)
        for number in itertools.count():
            answer.error = await self._attempt(answer, body, number)
            if not answer.error or answer.times:
                break
            wait = self._wait_before(number + 1, answer.attempts[-1])
            if wait is None:
                break
            await asyncio.sleep(wait)
        return answer

    async def close(self) -> None:
        await self._client.aclose()

    async def _attempt(self, answer: Answer, body: bytes, number: int) -> str:
        """What went wrong; empty when nothing did."""
        now = asyncio.get_running_loop().time
        headers = [("content-type", "application/json"), *self._said_of(number)]
        url = self._server.base_url + self._server.path
        try:
            request = self._client.stream("POST", url, content=body, headers=headers)
            async with request as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    return f"HTTP {response.status_code}"
                async for event in events(response.aiter_lines()):
                    if "error" in event:
                        return "error in the stream"
                    for choice in event.get("choices", ())[:1]:
                        if _said(choice, self._server.chat):
                            answer.times.append(now())
                    if usage := event.get("usage"):
                        count(answer, usage["prompt_tokens"], usage["completion_tokens"])
        except (httpx.HTTPError, orjson.JSONDecodeError, KeyError) as problem:
            return type(problem).__name__
        return ""

    def _said_of(self, number: int) -> list[tuple[str, str]]:
        """An attempt's own headers; our transport numbers it itself."""
        said = self._behaviour.headers(number, None)
        return [each for each in said if not self._repeats_below or each[0] != ATTEMPT_HEADER]

    def _wait_before(self, retry: int, last: Attempt) -> float | None:
        """Seconds; None when the client gives up."""
        if self._repeats_below:
            return None
        wait = self._behaviour.wait_before(retry, None, self._rng)
        if wait is None or (last.status and not retried(last.status)):
            return None
        if not self._behaviour.obeys:
            return wait
        if last.hint.retry is False:
            return None
        return wait if last.hint.wait is None else last.hint.wait


async def events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """The JSON of each server-sent event, up to [DONE]."""
    async for line in lines:
        if line.startswith("data:"):
            data = line[5:].strip()
            if data == "[DONE]":
                return
            yield orjson.loads(data)


def count(answer: Answer, prompt: int, output: int) -> None:
    """As the server counted."""
    answer.prompt_tokens, answer.output_tokens = prompt, output


def _said(choice: dict[str, Any], chat: bool) -> bool:
    if not chat:
        return bool(choice.get("text"))
    delta = choice.get("delta") or {}
    return bool(delta.get("content") or delta.get("reasoning_content"))
