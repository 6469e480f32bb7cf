"""The interceptors for blocking grpc clients against a real server, with virtual sleep."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from tests.admission.client.doubles import GONE, REFUSED, Answer, Naps, Service, retrier, served

from surgetank.admission.client.grpc_sync import sync_interceptors
from surgetank.telemetry.clock import ManualClock

UNARY = "/inference.GRPCInferenceService/Unary"
STREAM = "/inference.GRPCInferenceService/Stream"
DONE = Answer([b"1", b"2", b"3"])


@contextmanager
def channel(service: Service, naps: Naps) -> Iterator[grpc.Channel]:
    """A client of the service with our interceptors."""
    interceptors = sync_interceptors(retrier(naps.clock), naps)
    with served(service) as address, grpc.insecure_channel(address) as bare:
        yield grpc.intercept_channel(bare, *interceptors)


@pytest.fixture
def naps() -> Naps:
    return Naps(ManualClock())


def unary(client: grpc.Channel) -> Any:
    """A call with one answer."""
    return client.unary_unary(UNARY, None, None)(b"")


def stream(client: grpc.Channel) -> Any:
    """A call with many answers."""
    return client.unary_stream(STREAM, None, None)(b"")


def test_a_pushback_is_waited_to_the_millisecond(naps: Naps) -> None:
    service = Service([Answer(code=REFUSED, pushback="70"), DONE])
    with channel(service, naps) as client:
        assert unary(client) == b"123"
    assert (naps.taken, service.attempts) == ([0.07], ["0", "1"])


def test_what_is_final_is_raised_at_once(naps: Naps) -> None:
    service = Service([Answer(code=REFUSED, pushback="-1"), DONE])
    with channel(service, naps) as client, pytest.raises(grpc.RpcError) as raised:
        unary(client)
    assert raised.value.code() is REFUSED
    assert (naps.taken, service.attempts) == ([], ["0"])


def test_a_stream_is_tried_again_before_its_first_token(naps: Naps) -> None:
    service = Service([Answer(code=GONE), DONE])
    with channel(service, naps) as client:
        call = stream(client)
        assert list(call) == [b"1", b"2", b"3"]
        assert call.code() is grpc.StatusCode.OK
    assert service.attempts == ["0", "1"]


def test_a_stream_that_fails_after_token_three_is_not(naps: Naps) -> None:
    service = Service([Answer([b"1", b"2", b"3"], GONE), DONE])
    with channel(service, naps) as client:
        call = stream(client)
        assert [next(call) for _ in range(3)] == [b"1", b"2", b"3"]
        with pytest.raises(grpc.RpcError):
            next(call)
    assert (service.attempts, naps.taken) == (["0"], [])


def test_a_stream_ends_with_its_last_error(naps: Naps) -> None:
    service = Service([Answer(code=GONE)])
    with channel(service, naps) as client:
        call = stream(client)
        with pytest.raises(grpc.RpcError):
            next(call)
    assert service.attempts == ["0", "1", "2"]
