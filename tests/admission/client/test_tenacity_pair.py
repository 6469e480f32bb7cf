"""The pair for tenacity, in virtual time: waits, deadlines, hints, streams."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry
from tests.admission.client.doubles import Naps, retrier

from surgetank.admission.client.retrier import Retrier
from surgetank.admission.client.tenacity_pair import attempt_headers, hinted, stream
from surgetank.telemetry.clock import ManualClock


def refusal(status: int = 503, **headers: str) -> httpx.HTTPStatusError:
    """What httpx raises for a refused call."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx.Response(status, headers=named)
    return httpx.HTTPStatusError("no", request=httpx.Request("GET", "http://a"), response=response)


class Flaky:
    """Fails so many times, each time in its own way."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def naps(clock: ManualClock) -> Naps:
    return Naps(clock)


def retrying(mine: Retrier, naps: Naps) -> Retrying:
    """tenacity in virtual time."""
    began = naps.clock.monotonic()

    def elapsed(_: RetryCallState) -> float:
        return naps.clock.monotonic() - began

    return Retrying(sleep=naps, **hinted(mine, elapsed))


def test_a_deadline_of_five_seconds_ends_before_four(clock: ManualClock, naps: Naps) -> None:
    ask = Flaky(*(refusal(503, n=str(n)) for n in range(9)))
    mine = retrier(clock, attempts=9, base=1.0, cap=60.0, deadline=5.0)
    with pytest.raises(httpx.HTTPStatusError) as raised:
        retrying(mine, naps)(ask)
    assert naps.taken == [1.0, 2.0]
    assert clock.monotonic() < 4.0
    assert raised.value.response.headers["n"] == "2"  # the last error, not tenacity's own


def test_the_hint_is_what_is_waited(clock: ManualClock, naps: Naps) -> None:
    ask = Flaky(refusal(429, retry_after_ms="1700", x_should_retry="true"))
    assert retrying(retrier(clock), naps)(ask) == "answer"
    assert naps.taken == [1.7]


@pytest.mark.parametrize("error", [refusal(429, x_should_retry="false"), ValueError("mine")])
def test_what_is_final_is_raised_at_once(clock: ManualClock, naps: Naps, error: Exception) -> None:
    ask = Flaky(error)
    with pytest.raises(type(error)):
        retrying(retrier(clock), naps)(ask)
    assert (ask.calls, naps.taken) == (1, [])


def test_refused_responses_that_raise_nothing_count_too(clock: ManualClock, naps: Naps) -> None:
    answers = [httpx.Response(503), httpx.Response(200)]
    assert retrying(retrier(clock), naps)(answers.pop, 0).status_code == 200
    assert naps.taken == [0.2]


def test_calls_earn_what_retries_spend(clock: ManualClock, naps: Naps) -> None:
    mine = retrier(clock, floor=0.0)
    for _ in range(9):
        retrying(mine, naps)(Flaky())
    assert retrying(mine, naps)(Flaky(refusal())) == "answer"  # ten calls earned one retry
    poor = Flaky(refusal())
    with pytest.raises(httpx.HTTPStatusError):
        retrying(mine, naps)(poor)
    assert poor.calls == 1


def test_attempts_state_their_number(clock: ManualClock, naps: Naps) -> None:
    said = []
    for attempt in retrying(retrier(clock), naps):
        with attempt:
            said.append(attempt_headers(attempt.retry_state))
            if len(said) < 3:
                raise refusal()
    assert said == [{"x-surgetank-attempt": n} for n in ("0", "1", "2")]


async def test_the_decorator_and_asyncio_really_wait(clock: ManualClock, naps: Naps) -> None:
    flaky = Flaky(refusal(), refusal())

    @retry(sleep=naps.aio, **hinted(retrier(clock, base=1.0)))
    async def ask() -> str:
        return flaky()

    assert await ask() == "answer"
    assert (flaky.calls, clock.monotonic()) == (3, 3.0)


class Tokens:
    """Streams of tokens that break off, one script an attempt."""

    def __init__(self, *scripts: list[int | Exception]) -> None:
        self.scripts = list(scripts)
        self.attempts = 0
        self.closed = 0

    async def start(self) -> AsyncIterator[int]:
        self.attempts += 1
        try:
            for item in self.scripts.pop(0):
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed += 1


def aio(clock: ManualClock, naps: Naps) -> AsyncRetrying:
    return AsyncRetrying(sleep=naps.aio, **hinted(retrier(clock)))


async def test_a_stream_is_begun_again_before_its_first_token(
    clock: ManualClock, naps: Naps
) -> None:
    tokens = Tokens([refusal()], [1, 2, 3])
    assert [token async for token in stream(aio(clock, naps), tokens.start)] == [1, 2, 3]
    assert (tokens.attempts, naps.taken) == (2, [0.2])


async def test_a_stream_is_not_begun_again_after_it(clock: ManualClock, naps: Naps) -> None:
    tokens = Tokens([1, 2, 3, refusal()], [1, 2, 3, 4])
    answer = stream(aio(clock, naps), tokens.start)
    got = [await anext(answer) for _ in range(3)]
    with pytest.raises(httpx.HTTPStatusError):
        await anext(answer)
    assert (got, tokens.attempts, naps.taken) == ([1, 2, 3], 1, [])


async def test_an_empty_stream_is_an_answer(clock: ManualClock, naps: Naps) -> None:
    assert [token async for token in stream(aio(clock, naps), Tokens([]).start)] == []
