"""The admission bench measures what it says: both verdicts, at the queue length it names."""

from surgetank.control.bench.decisions import OPEN, PATIENT, STRICT, Counter, Spread, decide
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Priority


def test_the_open_gate_admits_and_the_strict_one_refuses() -> None:
    admitting = Counter(OPEN, PATIENT, Spread(3, 2))
    admitting.fill(40)
    spent, call = admitting.decide()
    assert call is not None
    assert spent > 0
    levels = {level.priority: level for level in admitting.desk.snapshot().queue}
    assert sum(sum(level.requests.values()) for level in levels.values()) == 41
    assert sum(levels[Priority.BATCH].requests.values()) >= 20
    call.cancel()
    refusing = Counter(STRICT, SloTargets(ttft=0.05), Spread(1, 1))
    refusing.fill(40)
    assert refusing.decide()[1] is None


def test_a_document_has_a_row_for_each_length_and_spread() -> None:
    found = decide((1, 20), 10, ManualClock(), lambda text: None)
    assert [row["queued"] for row in found["rows"]] == [1] * 4 + [20] * 4
    assert all(row["admitted_p50_us"] > 0 for row in found["rows"])
    assert found["worst_p50_us_at_1000"] is None
