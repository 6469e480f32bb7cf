"""Interceptors for blocking grpc clients: retries, hints and the attempt's number.

    channel = grpc.intercept_channel(grpc.insecure_channel(target), *sync_interceptors(Retrier()))

The rules are those of `grpc_aio`. `stub.Method.future(...)` blocks until its last attempt ended.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from surgetank.admission.client.failures import hint_of
from surgetank.admission.client.grpc_aio import numbered, owned
from surgetank.admission.client.retrier import Retrier

Sleep = Callable[[float], None]


def sync_interceptors(retrier: Retrier, sleep: Sleep = time.sleep) -> Sequence[Any]:
    """What to hand to `grpc.intercept_channel`."""
    return [RetryUnary(retrier, sleep), RetryStream(retrier, sleep)]


class RetryUnary(grpc.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    """One request, one answer."""

    def __init__(self, retrier: Retrier, sleep: Sleep = time.sleep) -> None:
        self._retrier = retrier
        self._sleep = sleep

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """The call that succeeded, or the last that failed."""
        if owned(client_call_details):
            return continuation(client_call_details, request)
        mine = self._retrier.begin(client_call_details.timeout)
        while True:
            call = continuation(numbered(client_call_details, mine), request)
            if call.code() is grpc.StatusCode.OK:
                return call
            wait = mine.next(hint_of(call, self._retrier.clock.wall()))
            if wait is None:
                return call
            self._sleep(wait)


class RetryStream(grpc.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    """One request, many answers: tried again while none has come."""

    def __init__(self, retrier: Retrier, sleep: Sleep = time.sleep) -> None:
        self._retrier = retrier
        self._sleep = sleep

    def intercept_unary_stream(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """The answers of the first attempt that gave any, or the last attempt's error."""
        if owned(client_call_details):
            return continuation(client_call_details, request)
        mine = self._retrier.begin(client_call_details.timeout)
        while True:
            call = continuation(numbered(client_call_details, mine), request)
            try:
                return _Resumed(call, [next(call)])
            except StopIteration:
                return _Resumed(call, [])
            except grpc.RpcError as error:
                wait = mine.next(hint_of(error, self._retrier.clock.wall()))
                if wait is None:
                    return call  # read again, it raises its error again
            self._sleep(wait)


class _Resumed:
    """A call whose first answer was already taken from it."""

    def __init__(self, call: Any, taken: list[Any]) -> None:
        self._call = call
        self._taken = taken

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._taken.pop() if self._taken else next(self._call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)
