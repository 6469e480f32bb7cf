"""The storm's arithmetic: recovery, goodput and amplification from hand-made samples."""

import pytest

from surgetank.control.demo.load import Sample
from surgetank.control.demo.verdict import Episode, judge, quantile, recovery


def sample(at: float, ok: bool, attempts: int = 1, ttft: float | None = None) -> Sample:
    return Sample(
        started=at,
        ended=at + 1,
        streamed=ttft is not None,
        ok=ok,
        ttft=ttft,
        attempts=tuple(at + i for i in range(attempts)),
        error="" if ok else "APITimeoutError",
    )


def episode(bad_until: float) -> Episode:
    """Ten calls a second for 60 s; those from 20 s to `bad_until` fail after three attempts."""
    samples = []
    for i in range(600):
        at = i / 10
        ok = not 20 <= at < bad_until
        samples.append(sample(at, ok, attempts=1 if ok else 3, ttft=0.2 if ok else None))
    return Episode(tuple(samples), stall_start=20, stall_end=28, duration=60)


def test_recovery_is_counted_from_the_end_of_the_stall() -> None:
    # The window [32.5, 37.5) still has 5 failures of 50 (exactly .9 succeed): the first good one.
    assert recovery(episode(bad_until=33), before=1.0, until=60) == pytest.approx(4.5)


def test_no_recovery_when_the_last_window_is_still_bad() -> None:
    assert recovery(episode(bad_until=60), before=1.0, until=60) is None


def test_calls_that_nobody_followed_prove_no_recovery() -> None:
    assert recovery(episode(bad_until=50), before=1.0, until=60) == pytest.approx(21.5)
    assert recovery(episode(bad_until=50), before=1.0, until=54) is None


def test_what_was_sick_before_the_stall_cannot_recover() -> None:
    assert recovery(episode(bad_until=33), before=0.4, until=60) is None


def test_a_relapse_counts_as_not_yet_recovered() -> None:
    healthy = episode(bad_until=28)
    relapsed = Episode(
        tuple(sample(s.started, False, 3) if 50 <= s.started < 52 else s for s in healthy.samples),
        20,
        28,
        60,
    )
    assert recovery(healthy, before=1.0, until=60) == 0.0
    assert recovery(relapsed, before=1.0, until=60) == pytest.approx(23.5)


def test_judge_reduces_a_run_to_its_row() -> None:
    row = judge(episode(bad_until=36), warm_up=10, patience=4)  # judged until 60 - 3 * 4
    assert (row.calls, row.observed) == (380, 20)
    assert row.goodput_before == pytest.approx(10.0)
    assert row.goodput_after == pytest.approx(120 / 20)
    assert row.success_after == pytest.approx(120 / 200)
    assert row.attempts_per_call == pytest.approx((160 * 3 + 120) / 280)
    assert row.ttft_p50 == 0.2


def test_quantile_is_nearest_rank() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([float(i) for i in range(1, 101)], 0.99) == 99.0
    assert quantile([], 0.5) is None
