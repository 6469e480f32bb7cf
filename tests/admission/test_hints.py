"""When refused clients are told to come back: spread out, within bounds, or not at all."""

import itertools
import random
import statistics

import pytest
from tests.admission.rig import Rig, refused

from surgetank.admission.gate import GateConfig
from surgetank.admission.hints import MAX_HINT, MAX_REFILL, MIN_HINT, Hints
from surgetank.admission.outcome import STATUS, Advice
from surgetank.telemetry.vocabulary import Outcome


def advise(hints: Hints, outcome: Outcome, rate: float, deadline: float | None = None) -> float:
    wait = hints.advise(outcome, now=100.0, wait=0.0, spacing=1 / rate, deadline=deadline)
    return -1.0 if wait is None else wait


@pytest.mark.parametrize("rate", [0.001, 0.5, 5.0, 100.0, 10_000.0])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_hint_is_none_or_within_its_bounds(outcome: Outcome, rate: float) -> None:
    hints = Hints(random.Random(3))
    for _ in range(300):
        wait = advise(hints, outcome, rate)
        most = MAX_REFILL if STATUS[outcome].advice is Advice.REFILL else MAX_HINT
        assert wait == -1.0 or MIN_HINT <= wait < most
        if STATUS[outcome].advice in (Advice.NEVER, Advice.NONE):
            assert wait == -1.0


def test_slots_follow_the_spacing_and_end_after_ten_seconds() -> None:
    hints = Hints(random.Random(3))
    waits = [advise(hints, Outcome.OVERLOAD, 4.0) for _ in range(60)]
    given = [wait for wait in waits if wait > 0]
    assert len(given) == pytest.approx(40, abs=4)  # 4 per second, for ten seconds
    gaps = [later - earlier for earlier, later in itertools.pairwise(given)]
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.15)
    assert waits[-1] == -1.0


def test_a_hint_beyond_the_deadline_is_not_given_and_uses_up_no_slot() -> None:
    hints = Hints(random.Random(3))
    for _ in range(50):
        assert advise(hints, Outcome.OVERLOAD, 4.0, deadline=100.4) == -1.0
    assert advise(hints, Outcome.OVERLOAD, 4.0) == pytest.approx(0.45, rel=0.11)
    assert advise(hints, Outcome.DRAINING, 4.0, deadline=100.4) == -1.0


def test_nobody_is_told_to_return_before_the_wait_is_over() -> None:
    hints = Hints(random.Random(3))
    outcome = Outcome.OVERLOAD
    waits = [
        hints.advise(outcome, now=100.0, wait=3.0, spacing=0.1, deadline=None) for _ in range(20)
    ]
    assert all(wait is not None and wait > 0.9 * 3.0 for wait in waits)


def test_a_hundred_refused_clients_come_back_over_more_than_a_second() -> None:
    rig = Rig(GateConfig(queue_requests=1, in_flight_seqs=1))
    for _ in range(2000):  # an engine that serves five hundred a second
        rig.send()
        rig.timer.advance(0.002)
        rig.backend.finish(len(rig.backend.started))
    rig.send()
    rig.send()
    hints = [refused(rig.send()).retry_after for _ in range(100)]
    given = [hint for hint in hints if hint is not None]
    assert len(given) == 100
    assert max(given) - min(given) > 1.0
    assert len({round(hint, 4) for hint in given}) > 90


def test_those_who_cannot_be_served_soon_are_told_not_to_retry() -> None:
    rig = Rig(GateConfig(queue_requests=5, in_flight_seqs=1))
    for _ in range(6):
        rig.send()
    hints = [refused(rig.send()).retry_after for _ in range(300)]
    given = [hint for hint in hints if hint is not None]
    assert len(given) >= 4
    assert all(MIN_HINT <= hint < MAX_HINT for hint in given)
    assert hints[-1] is None  # more than can be served in ten seconds
