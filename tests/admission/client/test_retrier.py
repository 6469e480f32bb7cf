"""When a call is tried again: jitter, hints, deadlines, attempts."""

import random
import statistics
from collections import Counter

import pytest
from tests.admission.client.doubles import retrier

from surgetank.admission.client.hints import NEVER, NOTHING, Hint
from surgetank.admission.client.retrier import Retrier, RetryPolicy
from surgetank.telemetry.clock import ManualClock


def test_backoff_doubles_up_to_the_cap() -> None:
    waits = [retrier(ManualClock(), base=1.0, cap=5.0).wait(n, NOTHING) for n in range(5)]
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_clients_at_the_longest_wait_do_not_return_together() -> None:
    policy = RetryPolicy(base=1.0, cap=10.0)
    waits = [Retrier(policy, rng=random.Random(n)).wait(9, NOTHING) for n in range(1000)]
    seconds = Counter(int(wait) for wait in waits)
    assert statistics.stdev(waits) > 0.2 * policy.cap
    assert max(seconds.values()) < 3 * len(waits) / policy.cap
    assert min(waits) >= 0.05
    assert max(waits) <= policy.cap


def test_a_hint_is_obeyed_and_never_undercut() -> None:
    waits = [Retrier(rng=random.Random(n)).wait(0, Hint(True, 3.0, 1.0)) for n in range(100)]
    assert Retrier().wait(0, Hint(True, 3.0)) == 3.0
    assert Retrier().wait(0, Hint(True, 0.0)) == 0.05
    assert min(waits) >= 3.0
    assert max(waits) <= 4.0
    assert statistics.stdev(waits) > 0.2


def test_ends_before_a_wait_that_cannot_fit() -> None:
    clock = ManualClock()
    call = retrier(clock, attempts=9, base=1.0, cap=60.0, deadline=5.0).begin()
    waits = []
    while (wait := call.next(NOTHING)) is not None:
        waits.append(wait)
        clock.advance(wait)
    assert waits == [1.0, 2.0]  # the third would end at 7 s
    assert clock.monotonic() == 3.0
    assert call.time_left() == 2.0


def test_the_callers_timeout_tightens_the_deadline() -> None:
    clock = ManualClock()
    assert retrier(clock, deadline=5.0).begin(timeout=2.0).time_left() == 2.0
    assert retrier(clock, deadline=5.0).begin(timeout=9.0).time_left() == 5.0
    assert retrier(clock).begin().time_left() is None


@pytest.mark.parametrize("hint", [None, NEVER, Hint(True, 61.0)])
def test_some_failures_are_final(hint: Hint | None) -> None:
    assert retrier(ManualClock()).begin().next(hint) is None


def test_attempts_are_counted_from_the_first() -> None:
    call = retrier(ManualClock(), attempts=3).begin()
    numbers = [call.attempt]
    while call.next(NOTHING) is not None:
        numbers.append(call.attempt)
    assert numbers == [0, 1, 2]


def test_without_budget_nothing_is_retried() -> None:
    call = retrier(ManualClock(), floor=0.0).begin()
    assert call.next(NOTHING) is None
    assert call.attempt == 0


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("attempts", 0, "1 to 10"), ("base", 0.01, "0.05 to 60"), ("cap", 0.1, "0.2 to 600")],
)
def test_a_policy_names_what_is_wrong(name: str, value: float, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; allowed: {allowed}"):
        RetryPolicy(**{name: value})  # type: ignore[arg-type]
