"""The small parts that the desk stands on: pace, permits, expiries."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.admission.rig import Rig, refused

from surgetank.admission.expiry import Expiries
from surgetank.admission.gate import GateConfig
from surgetank.admission.pace import Pace
from surgetank.admission.permit import Ledger, PermitError, Return
from surgetank.telemetry.vocabulary import Outcome, Reason


def serve(pace: Pace, start: float, seconds: float, *, rate: float, waiting: int) -> float:
    """So many choices a second, for so long."""
    for step in range(int(seconds * rate)):
        pace.pass_time(start + (step + 1) / rate, waiting=waiting, running=1)
        pace.finished(1, waiting=waiting)
    return start + seconds


def test_the_drain_rate_is_what_was_served_while_something_waited() -> None:
    pace = Pace(0.0)
    now = serve(pace, 0.0, 60, rate=1, waiting=0)
    assert pace.drain_rate == pytest.approx(1.0, rel=0.1)
    assert pace.predicted_wait(5) is None
    now = serve(pace, now, 30, rate=10, waiting=3)
    assert pace.drain_rate == pytest.approx(10, rel=0.1)
    assert pace.predicted_wait(20) == pytest.approx(2.0, rel=0.1)
    assert pace.predicted_wait(0) == 0.0
    pace.pass_time(now + 15, waiting=3, running=1)  # a stall
    assert pace.drain_rate < 6
    pace.pass_time(now + 500, waiting=0, running=0)  # long ago says nothing
    assert pace.predicted_wait(20) is None


def test_a_wait_longer_than_the_deadline_is_refused_as_overload() -> None:
    rig = Rig(GateConfig(in_flight_seqs=1))
    rig.send()
    for _ in range(100):  # ten a second
        rig.send()
        rig.timer.advance(0.1)
        rig.backend.finish(len(rig.backend.started))
    for _ in range(20):
        rig.send()
    refusal = refused(rig.send(headers=[("x-surgetank-timeout", "1")]))
    assert (refusal.outcome, refusal.reason) == (Outcome.OVERLOAD, Reason.PREDICTED_WAIT)
    assert refusal.measured == pytest.approx(2.0, rel=0.15)
    assert rig.send(headers=[("x-surgetank-timeout", "4")]).outcome is None


def test_a_permit_comes_back_once() -> None:
    ledger = Ledger()
    permits = [ledger.take(2, 5) for _ in range(3)]
    assert (ledger.seqs, ledger.kv_blocks, ledger.permits) == (6, 15, 3)
    permits[0].success()
    permits[1].ignored()
    permits[2].dropped()
    assert (ledger.seqs, ledger.kv_blocks, ledger.permits) == (0, 0, 0)
    assert ledger.returned == dict.fromkeys(Return, 1)
    with pytest.raises(PermitError, match="given back again"):
        permits[0].ignored()
    assert ledger.seqs == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.none() | st.floats(0, 100), st.booleans()), max_size=300
    )
)
def test_expiries_agree_with_a_plain_table(changes: list[tuple[int, float | None, bool]]) -> None:
    expiries: Expiries[int] = Expiries()
    table: dict[int, float] = {}
    for key, at, discard in changes:
        if discard or at is None:
            expiries.set(key, None)
            table.pop(key, None)
        else:
            expiries.set(key, at)
            table[key] = at
        assert expiries.next_at() == min(table.values(), default=math.inf)
    due = expiries.pop_due(50.0)
    assert sorted(due) == sorted(key for key, at in table.items() if at <= 50.0)
    assert [table[key] for key in due] == sorted(table[key] for key in due)
    assert len(expiries) == len(table) - len(due)


def test_discarded_expiries_do_not_pile_up() -> None:
    expiries: Expiries[int] = Expiries()
    for key in range(10_000):
        expiries.set(key, 600.0)
        expiries.discard(key)
    assert len(expiries._heap) < 200


def test_time_told_in_parts_fades_the_rate_as_time_told_at_once() -> None:
    whole, parts = Pace(0.0), Pace(0.0)
    for second in range(40):
        for pace, steps in ((whole, 1), (parts, 10)):
            for step in range(1, steps + 1):
                pace.pass_time(second + step / steps, waiting=second % 3, running=1)
            pace.finished(1, waiting=second % 3)
    assert parts.drain_rate == pytest.approx(whole.drain_rate, rel=1e-9)
    assert whole.drain_rate == pytest.approx(1.0, rel=0.1)
