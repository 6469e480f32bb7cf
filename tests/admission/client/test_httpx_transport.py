"""The httpx transports: what is tried again, what is replayed, and who counts."""

from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest
from tests.admission.client.doubles import Naps, retrier

from surgetank.admission.client.httpx_transport import AsyncRetryTransport, RetryTransport
from surgetank.telemetry.clock import ManualClock

Result = httpx.Response | Exception
URL = "http://service/v1/completions"


class Script:
    """A server that plays one result per attempt, and remembers what it was asked."""

    def __init__(self, *results: Result) -> None:
        self.results = list(results)
        self.attempts: list[str] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.attempts.append(request.headers.get("x-surgetank-attempt", "-"))
        self.bodies.append(request.read() if isinstance(request.stream, httpx.ByteStream) else b"")
        result = self.results[min(len(self.attempts), len(self.results)) - 1]
        if isinstance(result, Exception):
            raise result
        return result


def refusal(status: int = 429, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=named, json={"error": {"message": "no"}})


@pytest.fixture
def naps() -> Naps:
    return Naps(ManualClock())


def client(script: Callable[..., httpx.Response], naps: Naps, layers: int = 1) -> httpx.Client:
    transport: httpx.BaseTransport = httpx.MockTransport(script)
    for _ in range(layers):
        transport = RetryTransport(retrier(naps.clock), transport, naps)
    return httpx.Client(transport=transport)


def test_a_refusal_is_waited_out_and_the_body_said_again(naps: Naps) -> None:
    script = Script(refusal(retry_after_ms="120"), httpx.Response(200, text="hello"))
    with client(script, naps) as http:
        assert http.post(URL, json={"prompt": "x"}).text == "hello"
    assert naps.taken == [0.12]
    assert script.attempts == ["0", "1"]
    assert script.bodies == [b'{"prompt":"x"}'] * 2


def test_a_body_that_can_be_read_once_is_sent_once(naps: Naps) -> None:
    script = Script(refusal(503), httpx.Response(200))

    def body() -> Iterator[bytes]:
        yield b"once"

    with client(script, naps) as http:
        assert http.post(URL, content=body()).status_code == 503
    assert script.attempts == ["0"]


@pytest.mark.parametrize(
    ("result", "attempts"),
    [
        (refusal(429, x_should_retry="false"), 1),
        (refusal(400), 1),
        (refusal(504), 1),
        (refusal(503), 3),
        (refusal(429, retry_after="90"), 1),
    ],
)
def test_which_answers_are_tried_again(naps: Naps, result: httpx.Response, attempts: int) -> None:
    script = Script(result)
    with client(script, naps) as http:
        answer = http.post(URL, json={})
    assert answer.status_code == result.status_code
    assert answer.json() == {"error": {"message": "no"}}  # the last refusal is still readable
    assert len(script.attempts) == attempts


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (httpx.ConnectError("x"), 3),
        (httpx.RemoteProtocolError("x"), 3),
        (httpx.ReadTimeout("x"), 1),
    ],
)
def test_which_failures_are_tried_again(naps: Naps, error: Exception, attempts: int) -> None:
    script = Script(error)
    with client(script, naps) as http, pytest.raises(type(error)):
        http.post(URL, json={})
    assert len(script.attempts) == attempts


def test_what_is_given_up_tells_the_layers_above(naps: Naps) -> None:
    with client(Script(refusal(503)), naps) as http:
        assert http.post(URL, json={}).headers["x-should-retry"] == "false"
        assert "x-should-retry" not in client(Script(refusal(400)), naps).get(URL).headers


def test_nested_layers_count_an_attempt_once(naps: Naps) -> None:
    script = Script(refusal(503))
    with client(script, naps, layers=3) as http:
        http.post(URL, json={})
    assert script.attempts == ["0", "1", "2"]


def test_an_sdk_that_retries_by_itself_is_left_to_it(naps: Naps) -> None:
    script = Script(refusal(503))
    with client(script, naps) as http:
        http.post(URL, json={}, headers={"x-stainless-retry-count": "1"})
    assert script.attempts == ["-"]


def test_a_callers_request_can_be_sent_again(naps: Naps) -> None:
    script = Script(*(refusal(503) for _ in range(6)))
    with client(script, naps) as http:
        request = http.build_request("POST", URL, json={})
        http.send(request)
        http.send(request)
    assert script.attempts == ["0", "1", "2"] * 2


class Breaking(httpx.AsyncByteStream):
    """Three tokens, then the connection is lost."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for token in (b"1", b"2", b"3"):
            yield token
        raise httpx.ReadError("connection lost")


async def test_async_after_the_first_token_nothing_is_tried_again(naps: Naps) -> None:
    script = Script(refusal(503), httpx.Response(200, stream=Breaking()))
    transport = AsyncRetryTransport(
        retrier(naps.clock, base=1.0), httpx.MockTransport(script), naps.aio
    )
    got = []
    async with (
        httpx.AsyncClient(transport=transport) as http,
        http.stream("POST", URL, json={}) as answer,
    ):
        tokens = answer.aiter_raw()
        got = [await anext(tokens) for _ in range(3)]
        with pytest.raises(httpx.ReadError):
            await anext(tokens)
    assert (got, script.attempts) == ([b"1", b"2", b"3"], ["0", "1"])
    assert naps.clock.monotonic() == 1.0


async def test_async_failures_are_tried_again_too(naps: Naps) -> None:
    script = Script(httpx.ConnectError("x"), refusal(429, retry_after_ms="50"), httpx.Response(204))
    transport = AsyncRetryTransport(retrier(naps.clock), httpx.MockTransport(script), naps.aio)
    async with httpx.AsyncClient(transport=transport) as http:
        assert (await http.post(URL, json={})).status_code == 204
    assert (naps.taken, script.attempts) == ([0.2, 0.05], ["0", "1", "2"])
