"""Open-loop load from the real `openai` client: its own retries and timeouts, every call timed."""

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import openai

from surgetank.telemetry.clock import Clock

_WORDS = ["tide", "river", "gauge", "valve", "pump", "turbine", "dam", "surge", "flow", "basin"]
_attempts: contextvars.ContextVar[list[float]] = contextvars.ContextVar("attempts")


@dataclass(frozen=True)
class Shape:
    """What every caller asks for."""

    model: str = "default"
    prompt_words: int = 40
    max_tokens: int = 32
    timeout: float = 5.0  # seconds per attempt, as the caller passes it to its client
    stream_share: float = 0.5  # callers that stream; the others wait for the whole answer


@dataclass(frozen=True)
class Sample:
    """One call as its caller saw it. Times in seconds since the load began."""

    started: float
    ended: float
    streamed: bool
    ok: bool
    ttft: float | None  # streamed calls that got a first token; counted from the first attempt
    attempts: tuple[float, ...]  # when each HTTP request left
    error: str  # class of the exception that the caller got; empty when ok


def arrivals(rate: float, duration: float, rng: random.Random) -> Iterator[float]:
    """Poisson arrival times in [0, duration), `rate` per second."""
    at = rng.expovariate(rate)
    while at < duration:
        yield at
        at += rng.expovariate(rate)


async def _note_attempt(request: httpx.Request) -> None:
    _attempts.get().append(asyncio.get_running_loop().time())


class Callers:
    """Many independent callers that share one connection pool, as a service's workers would."""

    def __init__(self, base_url: str, shape: Shape, rng: random.Random, clock: Clock) -> None:
        self._shape = shape
        self._rng = rng
        self._clock = clock
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key="unused",
            timeout=shape.timeout,
            http_client=openai.DefaultAsyncHttpxClient(event_hooks={"request": [_note_attempt]}),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def call(self, origin: float) -> Sample:
        """One call with whatever retries the client makes of itself."""
        left: list[float] = []
        _attempts.set(left)
        streamed = self._rng.random() < self._shape.stream_share
        words = " ".join(self._rng.choices(_WORDS, k=self._shape.prompt_words))
        started = self._clock.monotonic()
        ttft, error = None, ""
        try:
            if streamed:
                ttft = await self._stream(words, started)
            else:
                await self._plain(words)
        except openai.OpenAIError as problem:
            error = type(problem).__name__
        except httpx.HTTPError as problem:  # a stream that broke after its first byte
            error = type(problem).__name__
        return Sample(
            started=started - origin,
            ended=self._clock.monotonic() - origin,
            streamed=streamed,
            ok=not error,
            ttft=ttft,
            attempts=tuple(at - origin for at in left),
            error=error,
        )

    async def _plain(self, words: str) -> None:
        await self._client.completions.create(
            model=self._shape.model,
            prompt=words,
            max_tokens=self._shape.max_tokens,
            temperature=0,
            extra_body={"ignore_eos": True},
        )

    async def _stream(self, words: str, started: float) -> float | None:
        stream = await self._client.completions.create(
            model=self._shape.model,
            prompt=words,
            max_tokens=self._shape.max_tokens,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        ttft = None
        async for _chunk in stream:
            if ttft is None:
                ttft = self._clock.monotonic() - started
        return ttft


async def open_loop(
    callers: Callers,
    times: Iterator[float],
    clock: Clock,
    on_sample: Callable[[Sample], None],
) -> None:
    """Start a call at each time, whatever happens to the others; returns when all have ended."""
    origin = clock.monotonic()
    pending: set[asyncio.Task[None]] = set()

    async def one() -> None:
        on_sample(await callers.call(origin))

    for at in times:
        await asyncio.sleep(max(0.0, origin + at - clock.monotonic()))
        task = asyncio.create_task(one())
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.gather(*pending)


async def closed_loop(callers: Callers, width: int, seconds: float, clock: Clock) -> float:
    """Capacity: completed calls per second with `width` callers that never pause."""
    origin = clock.monotonic()
    warm, end = origin + 0.3 * seconds, origin + seconds
    done = 0

    async def caller() -> None:
        nonlocal done
        while clock.monotonic() < end:
            sample = await callers.call(origin)
            if sample.ok and warm <= origin + sample.ended < end:
                done += 1

    await asyncio.gather(*(caller() for _ in range(width)))
    return done / (end - warm)
