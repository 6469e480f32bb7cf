"""Doubles of the client helpers' tests: virtual sleep, the top of a range, a scripted service."""

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from surgetank.admission.client.budget import RetryBudget
from surgetank.admission.client.retrier import Retrier, RetryPolicy
from surgetank.telemetry.clock import ManualClock

REFUSED = grpc.StatusCode.RESOURCE_EXHAUSTED
GONE = grpc.StatusCode.UNAVAILABLE


class Highest(random.Random):
    """Draws the top of every range, so that jitter does not blur what a test asserts."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


class Naps:
    """Sleep in virtual time: advances the clock and remembers."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.taken: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        self.clock.advance(seconds)

    async def aio(self, seconds: float) -> None:
        """The same for asyncio."""
        self(seconds)


def retrier(clock: ManualClock, *, floor: float = 10.0, **policy: float) -> Retrier:
    """A retrier in virtual time without jitter."""
    budget = RetryBudget(floor=floor, clock=clock)
    rng = Highest()
    return Retrier(RetryPolicy(**policy), budget=budget, clock=clock, rng=rng)  # type: ignore[arg-type]


@dataclass
class Answer:
    """One attempt's fate: tokens, then the status with its trailers."""

    tokens: Sequence[bytes] = ()
    code: grpc.StatusCode = grpc.StatusCode.OK
    pushback: str = ""


@dataclass
class Service:
    """A gRPC service that plays one answer per attempt, and remembers what attempts said."""

    script: list[Answer]
    attempts: list[str | None] = field(default_factory=list)
    deadlines: list[float | None] = field(default_factory=list)

    def next(self, context: Any) -> Answer:
        said = {str(name): value for name, value in context.invocation_metadata() or ()}
        attempt = said.get("x-surgetank-attempt")
        self.attempts.append(None if attempt is None else str(attempt))
        self.deadlines.append(context.time_remaining())
        return self.script[min(len(self.attempts), len(self.script)) - 1]

    def unary(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        answer = self.next(context)
        self.end(answer, context)
        return b"".join(answer.tokens)

    def stream(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        answer = self.next(context)
        yield from answer.tokens
        self.end(answer, context)

    async def aio_unary(self, request: bytes, context: Any) -> bytes:
        answer = self.next(context)
        await self.aio_end(answer, context)
        return b"".join(answer.tokens)

    async def aio_stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        answer = self.next(context)
        for token in answer.tokens:
            yield token
        await self.aio_end(answer, context)

    async def aio_end(self, answer: Answer, context: Any) -> None:
        if answer.code is not grpc.StatusCode.OK:
            pushback = (("grpc-retry-pushback-ms", answer.pushback),) if answer.pushback else ()
            await context.abort(answer.code, "refused", pushback)

    def end(self, answer: Answer, context: grpc.ServicerContext) -> None:
        if answer.pushback:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", answer.pushback),))
        if answer.code is not grpc.StatusCode.OK:
            context.abort(answer.code, "refused")


def _handlers(unary: Any, stream: Any) -> Any:
    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    return grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)


@contextmanager
def served(service: Service) -> Iterator[str]:
    """The service on loopback; yields its address."""
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_handlers(service.unary, service.stream),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


@asynccontextmanager
async def served_aio(service: Service) -> AsyncIterator[str]:
    """The same on a grpc.aio server."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(service.aio_unary, service.aio_stream),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)
