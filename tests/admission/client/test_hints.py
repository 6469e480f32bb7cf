"""Advice in headers and trailers, and which failures are worth a retry at all."""

import httpx
import pytest

from surgetank.admission.client.failures import hint_of
from surgetank.admission.client.hints import COARSE, NEVER, NOTHING, Hint, read_hint

WALL = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ({}, NOTHING),
        ({"retry-after-ms": "1500", "retry-after": "2"}, Hint(None, 1.5)),
        ({"Retry-After": "2"}, Hint(None, 2.0, COARSE)),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:25 GMT"}, Hint(None, 5.0, COARSE)),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:00 GMT"}, Hint(None, 0.0, COARSE)),
        ({"x-should-retry": "true", "retry-after-ms": "80"}, Hint(True, 0.08)),
        ({"x-should-retry": "false", "retry-after": "1"}, NEVER),
        ({"grpc-retry-pushback-ms": "250"}, Hint(True, 0.25)),
        ({"grpc-retry-pushback-ms": "-1"}, NEVER),
        ({"grpc-retry-pushback-ms": "soon"}, NEVER),
        ({"retry-after": "soon", "retry-after-ms": "-3"}, NOTHING),
        ({"retry-after-ms": "nan"}, NOTHING),
    ],
)
def test_advice(headers: dict[str, str], hint: Hint) -> None:
    assert read_hint(headers.items(), WALL) == hint


@pytest.mark.parametrize(
    ("status", "headers", "hint"),
    [
        (429, {"retry-after-ms": "70"}, Hint(None, 0.07)),
        (503, {}, NOTHING),
        (529, {}, NOTHING),
        (504, {}, None),
        (500, {}, None),
        (500, {"x-should-retry": "true"}, Hint(True)),
        (429, {"x-should-retry": "false"}, NEVER),
        (200, {"retry-after": "1"}, None),
    ],
)
def test_answers(status: int, headers: dict[str, str], hint: Hint | None) -> None:
    response = httpx.Response(status, headers=headers)
    assert hint_of(response, WALL) == hint
    error = httpx.HTTPStatusError("x", request=httpx.Request("GET", "http://a"), response=response)
    assert hint_of(error, WALL) == hint


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (httpx.ConnectError("refused"), NOTHING),
        (ConnectionRefusedError(), NOTHING),
        (httpx.ReadTimeout("slow"), None),
        (ValueError("mine"), None),
    ],
)
def test_exceptions(error: Exception, hint: Hint | None) -> None:
    assert hint_of(error, WALL) == hint
    wrapped = RuntimeError("connection error")
    wrapped.__cause__ = error
    assert hint_of(wrapped, WALL) == hint
