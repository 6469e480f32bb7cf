"""Who comes back is recognised, once per failure; and whether the advice was followed is known."""

import pytest

from surgetank.admission.api import Ask
from surgetank.admission.attempts import _KEEP, REMEMBERED, Attempts, Failure
from surgetank.engine.api import SamplingParams

SAMPLING = SamplingParams(max_tokens=8)


@pytest.fixture
def attempts() -> Attempts:
    return Attempts(b"k" * 32)


def mark(attempts: Attempts, tenant: str = "t", prompt: tuple[int, ...] = (1, 2, 3)) -> bytes:
    return attempts.fingerprint(tenant, "tiny", Ask(list(prompt), SAMPLING).identity)


def test_a_fingerprint_tells_requests_apart_and_needs_its_key(attempts: Attempts) -> None:
    same = mark(attempts)
    assert mark(attempts) == same
    assert len(same) == 16
    others = {
        mark(attempts, tenant="u"),
        mark(attempts, prompt=(1, 2, 4)),
        attempts.fingerprint("t", "tiny", Ask([1, 2, 3], SamplingParams(max_tokens=9)).identity),
        attempts.fingerprint("t", "tiny", Ask([1, 2, 3], SAMPLING, 2).identity),
        mark(Attempts(b"x" * 32)),
    }
    assert len(others | {same}) == 6


def test_each_failure_accounts_for_one_return(attempts: Attempts) -> None:
    failed = mark(attempts)
    assert attempts.returned(failed, 0.0) is None
    attempts.failed(failed, Failure(1.0, 0, 2.0))
    attempts.failed(failed, Failure(2.0, 1, None))
    first, second = attempts.returned(failed, 2.9), attempts.returned(failed, 9.0)
    assert first is not None
    assert second is not None
    assert first.taken == pytest.approx(1.9)
    assert first.obeyed
    assert (second.failure.attempt, second.taken, second.obeyed) == (1, 7.0, None)
    assert attempts.returned(failed, 9.0) is None
    assert len(attempts) == 0


def test_coming_back_early_is_not_obedience(attempts: Attempts) -> None:
    failed = mark(attempts)
    attempts.failed(failed, Failure(1.0, 0, 2.0))
    returned = attempts.returned(failed, 2.0)
    assert returned is not None
    assert returned.obeyed is False


def test_failures_are_forgotten_after_a_minute_and_bounded_in_number(attempts: Attempts) -> None:
    failed = mark(attempts)
    attempts.failed(failed, Failure(0.0, 0, None))
    assert attempts.returned(failed, REMEMBERED + 0.1) is None
    for number in range(_KEEP + 10):
        attempts.failed(number.to_bytes(16, "big"), Failure(100.0, 0, None))
    assert len(attempts) == _KEEP
    attempts.failed(failed, Failure(100.0 + REMEMBERED + 1, 0, None))
    assert len(attempts) == 1
