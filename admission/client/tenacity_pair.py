"""For tenacity: when to retry, how long to wait, when to stop; and streams that begin again safely.

    retrier = Retrier(RetryPolicy(attempts=3, deadline=30.0))

    @tenacity.retry(**hinted(retrier))
    async def ask() -> Answer: ...

Turn the client's own retries off (openai: max_retries=0): one layer owns them.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState
from tenacity.retry import retry_base
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from surgetank.admission.client.failures import hint_of
from surgetank.admission.client.hints import NOTHING, Hint
from surgetank.admission.client.retrier import ATTEMPT_HEADER, Retrier

T = TypeVar("T")
Elapsed = Callable[[RetryCallState], float]


def since_start(state: RetryCallState) -> float:
    """Seconds since the first attempt began, on tenacity's clock."""
    return state.seconds_since_start or 0.0


class retry_hinted(retry_base):
    """Retry what a retry can cure, unless the server says no; counts each call into the budget."""

    def __init__(self, retrier: Retrier) -> None:
        self._retrier = retrier

    def __call__(self, retry_state: RetryCallState) -> bool:
        if retry_state.attempt_number == 1:
            self._retrier.budget.deposit()
        hint = _hint(retry_state, self._retrier)
        return hint is not None and hint.retry is not False


class wait_hinted(wait_base):
    """The server's hint, or full jitter where it gave none."""

    def __init__(self, retrier: Retrier) -> None:
        self._retrier = retrier

    def __call__(self, retry_state: RetryCallState) -> float:
        hint = _hint(retry_state, self._retrier) or NOTHING
        return self._retrier.wait(retry_state.attempt_number - 1, hint)


class stop_hinted(stop_base):
    """Stop before a wait that does not fit the deadline, after the last attempt, without budget.

    `elapsed` says how long the call has been going on.
    """

    def __init__(self, retrier: Retrier, elapsed: Elapsed = since_start) -> None:
        self._retrier = retrier
        self._elapsed = elapsed

    def __call__(self, retry_state: RetryCallState) -> bool:
        deadline = self._retrier.policy.deadline
        left = None if deadline is None else deadline - self._elapsed(retry_state)
        attempt, wait = retry_state.attempt_number - 1, retry_state.upcoming_sleep
        return not self._retrier.allows(attempt, wait, left)


def hinted(retrier: Retrier, elapsed: Elapsed = since_start) -> dict[str, Any]:
    """Arguments for `tenacity.retry`, `Retrying` and `AsyncRetrying`; the last error is raised."""
    return {
        "retry": retry_hinted(retrier),
        "wait": wait_hinted(retrier),
        "stop": stop_hinted(retrier, elapsed),
        "reraise": True,
    }


def attempt_headers(state: RetryCallState) -> dict[str, str]:
    """What an attempt must send along, so that it is counted once: 0 on the first try."""
    return {ATTEMPT_HEADER: str(state.attempt_number - 1)}


async def stream(
    retrying: AsyncRetrying, start: Callable[[], AsyncIterator[T]]
) -> AsyncIterator[T]:
    """The items of `start()`, tried again while none has come; a later error is the caller's.

    A decorated async generator is never retried by tenacity, and one that is begun again after
    its first item says everything twice.
    """
    async for attempt in retrying:
        with attempt:
            items = start()
            first = await anext(items, _END)
    try:
        if first is not _END:
            yield first
            async for item in items:
                yield item
    finally:
        if hasattr(items, "aclose"):  # left early: the source learns of it now
            await items.aclose()


_END: Any = object()


def _hint(state: RetryCallState, retrier: Retrier) -> Hint | None:
    if state.outcome is None:
        return None
    wall = retrier.clock.wall()
    error = state.outcome.exception()
    return hint_of(state.outcome.result() if error is None else error, wall)
