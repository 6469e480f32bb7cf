"""Judging: what counts as good, what it costs, and numbers that a bad gate cannot dress up."""

import pytest

from surgetank.control.lab.engine import Totals
from surgetank.control.lab.judge import judge, tries
from surgetank.control.lab.log import ABANDONED, NAN, OUTCOMES, Log
from surgetank.control.lab.steptime import EngineSpec, StepModel
from surgetank.control.lab.summary import as_json, quartiles, summarise
from surgetank.control.lab.world import Run, Scenario
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Outcome

SCENARIO = Scenario(
    engine=EngineSpec(model=StepModel(t0=0.01, a=0.0001, b=0.0, c=0.0), max_num_seqs=10),
    slo=SloTargets(ttft=1.0, tpot=0.1),
)


def row(log: Log, **changes: float) -> None:
    """One call of 100 and 10 tokens, answered well, but for the changes."""
    usual = {
        "number": len(log.calls.number), "arrived": 0.0, "heard": 0.5, "ended": 1.0,
        "prompt": 100, "output": 10, "tenant": log.tenant(""), "priority": 1, "ok": 1,
        "ttft": 0.5, "tpot": 0.05, "attempts": 1, "admitted": 1,
    }  # fmt: skip
    for name, value in {**usual, **changes}.items():
        column = getattr(log.calls, name)
        column.append(float(value) if column.typecode == "d" else int(value))


def attempt(log: Log, outcome: int, *, admitted: bool, ttft: float = 0.5) -> None:
    usual = {
        "call": 0, "number": 0, "at": 0.0, "ended": 1.0, "admitted": admitted, "outcome": outcome,
        "reason": 0, "advised": NAN, "taken": NAN, "tokens": 10, "ttft": ttft, "tpot": 0.05,
    }  # fmt: skip
    for name, value in usual.items():
        column = getattr(log.attempts, name)
        column.append(float(value) if column.typecode == "d" else int(value))


def run(log: Log) -> Run:
    return Run(SCENARIO, log, (), 10.0)


def test_good_is_answered_and_within_both_targets() -> None:
    log = Log()
    row(log)
    row(log, ttft=1.01)
    row(log, tpot=0.11)
    row(log, ok=0)
    row(log, output=1, tpot=NAN)  # one token has no time per token to be late with
    assert list(judge(run(log)).good) == [True, False, False, False, True]


def test_cost_and_goodput_are_in_engine_seconds() -> None:
    log = Log()
    row(log, ended=2.0)
    row(log, ended=2.5, prompt=300)
    row(log, ended=9.0)
    calls = judge(run(log))
    # a * 100 + t0 / 10 * 10 = .02 with the batch of 10 that the slots allow
    assert calls.cost == pytest.approx([0.02, 0.04, 0.02])
    assert calls.goodput(1.0, 3.0) == pytest.approx(0.06 / 2)


def test_rows_come_back_in_order_of_arrival() -> None:
    log = Log()
    row(log, number=1, arrived=5.0)
    row(log, number=0, arrived=2.0)
    assert list(judge(run(log)).arrived) == [2.0, 5.0]


def test_quartiles_split_by_size_of_prompt() -> None:
    log = Log()
    for size in range(1, 41):
        row(log, prompt=size * 10, ok=size <= 15)
    assert quartiles(judge(run(log))) == (1.0, 0.5, 0.0, 0.0)


def test_late_counts_what_was_let_in_and_not_kept() -> None:
    log = Log()
    row(log)
    ok, expired = OUTCOMES.index(Outcome.OK), OUTCOMES.index(Outcome.EXPIRED)
    attempt(log, ok, admitted=True)
    attempt(log, ok, admitted=True, ttft=3.0)
    attempt(log, expired, admitted=True)
    attempt(log, OUTCOMES.index(Outcome.OVERLOAD), admitted=False)
    attempt(log, ABANDONED, admitted=True)
    summary = summarise(Run(SCENARIO, log, (Totals(),), 10.0))
    assert summary.late == pytest.approx(2 / 3)
    assert tries(run(log)).good.sum() == 1


def test_nothing_measured_is_null_and_not_zero() -> None:
    told = as_json(summarise(Run(SCENARIO, Log(), (Totals(),), 0.0)))
    assert told["calls"] == 0
    assert told["success"] is None
    assert told["ttft_p99"] is None
