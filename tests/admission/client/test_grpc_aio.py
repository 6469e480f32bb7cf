"""The grpc.aio interceptors against a real server, with virtual sleep."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.admission.client.doubles import (
    GONE,
    REFUSED,
    Answer,
    Naps,
    Service,
    retrier,
    served_aio,
)

from surgetank.admission.client.grpc_aio import aio_interceptors
from surgetank.admission.client.retrier import Retrier
from surgetank.telemetry.clock import ManualClock

UNARY = "/inference.GRPCInferenceService/Unary"
STREAM = "/inference.GRPCInferenceService/Stream"
DONE = Answer([b"1", b"2", b"3"])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def naps(clock: ManualClock) -> Naps:
    return Naps(clock)


@asynccontextmanager
async def channel(
    service: Service, naps: Naps, mine: Retrier | None = None, layers: int = 1
) -> AsyncIterator[grpc.aio.Channel]:
    """A client of the service with so many layers of our interceptors."""
    mine = mine or retrier(naps.clock)
    interceptors = [each for _ in range(layers) for each in aio_interceptors(mine, naps.aio)]
    async with (
        served_aio(service) as address,
        grpc.aio.insecure_channel(address, interceptors=interceptors) as open_channel,
    ):
        yield open_channel


def unary(client: grpc.aio.Channel, timeout: float | None = None) -> Any:
    """A call with one answer."""
    return client.unary_unary(UNARY, None, None)(b"", timeout=timeout)


def stream(client: grpc.aio.Channel) -> Any:
    """A call with many answers."""
    return client.unary_stream(STREAM, None, None)(b"")


async def test_a_pushback_is_waited_to_the_millisecond(naps: Naps) -> None:
    service = Service([Answer(code=REFUSED, pushback="70"), Answer(code=GONE), DONE])
    async with channel(service, naps) as client:
        assert await unary(client) == b"123"
    assert naps.taken == [0.07, 0.4]
    assert service.attempts == ["0", "1", "2"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(code=REFUSED, pushback="-1"),
        Answer(code=REFUSED),  # grpcio's own, of a message that is too large
        Answer(code=grpc.StatusCode.INVALID_ARGUMENT),
        Answer(code=GONE, pushback="99000"),
    ],
)
async def test_what_is_final_is_raised_at_once(naps: Naps, answer: Answer) -> None:
    service = Service([answer, DONE])
    async with channel(service, naps) as client:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unary(client)
    assert raised.value.code() is answer.code
    assert (service.attempts, naps.taken) == (["0"], [])


async def test_a_wait_past_the_deadline_is_not_begun(naps: Naps) -> None:
    service = Service([Answer(code=GONE, pushback="4000")])
    async with channel(service, naps) as client:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unary(client, timeout=10.0)
    assert raised.value.code() is GONE  # the last error, not DEADLINE_EXCEEDED
    assert naps.taken == [4.0, 4.0]
    assert service.deadlines == [pytest.approx(left, abs=0.9) for left in (9.5, 5.5, 1.5)]


async def test_a_stream_is_tried_again_before_its_first_token(naps: Naps) -> None:
    service = Service([Answer(code=GONE), DONE])
    async with channel(service, naps) as client:
        call = stream(client)
        assert [token async for token in call] == [b"1", b"2", b"3"]
        assert await call.code() is grpc.StatusCode.OK
    assert service.attempts == ["0", "1"]


async def test_a_stream_that_fails_after_token_three_is_not(naps: Naps) -> None:
    service = Service([Answer([b"1", b"2", b"3"], GONE), DONE])
    async with channel(service, naps) as client:
        call = stream(client)
        got = [await call.read() for _ in range(3)]
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
    assert (got, service.attempts, naps.taken) == ([b"1", b"2", b"3"], ["0"], [])


async def test_a_stream_ends_with_its_last_error(naps: Naps) -> None:
    service = Service([Answer(code=GONE), Answer(code=REFUSED, pushback="-1")])
    async with channel(service, naps) as client:
        call = stream(client)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
    assert raised.value.code() is REFUSED
    assert service.attempts == ["0", "1"]


async def test_an_empty_stream_is_an_answer(naps: Naps) -> None:
    service = Service([Answer()])
    async with channel(service, naps) as client:
        assert [token async for token in stream(client)] == []
    assert service.attempts == ["0"]


@pytest.mark.parametrize("method", [UNARY, STREAM])
async def test_nested_layers_count_an_attempt_once(naps: Naps, method: str) -> None:
    service = Service([Answer(code=GONE)])
    async with channel(service, naps, layers=3) as client:
        call = unary(client) if method == UNARY else stream(client).read()
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    assert service.attempts == ["0", "1", "2"]  # three attempts, not 3 * 3 * 3


async def test_a_spent_budget_ends_the_storm(naps: Naps, clock: ManualClock) -> None:
    service = Service([Answer(code=GONE)])
    calls = 40
    async with channel(service, naps, retrier(clock, floor=0.0)) as client:
        for _ in range(calls):
            with pytest.raises(grpc.aio.AioRpcError):
                await unary(client)
    assert len(service.attempts) <= 1.1 * calls
