"""The lab's side: equal seeds, what a caller of each kind sees, and a stall that is felt."""

import math
from dataclasses import replace

import pytest

from surgetank.admission.gate import GateConfig
from surgetank.control.bench.scenarios.forecast import Ground, predicted, simulate
from surgetank.control.bench.scenarios.plan import GRPC, OPENAI, Call, Cell
from surgetank.control.lab.steptime import EngineSpec, StepModel
from surgetank.telemetry.slo import SloTargets

GROUND = Ground(
    spec=EngineSpec(
        model=StepModel(t0=0.02, a=0.001, b=0.002, c=0.0), max_num_seqs=8, max_batch_tokens=64
    ),
    gate=GateConfig(),
    slo=SloTargets(ttft=1.0, tpot=0.2),
    capacity=5.0,
    path=0.0,
    timeout=2.0,
    deadline=6.0,
)


def cell(*calls: Call, stall: tuple[float, float] | None = None) -> Cell:
    return Cell("b", "x", calls, 0.0, 10.0, 1.0, stall)


def test_a_lonely_call_takes_its_steps() -> None:
    (row,), grpc = simulate(cell(Call(2.0, 50, 3)), GROUND, seed=1)
    assert row.sent == pytest.approx(2.0)
    assert row.heard == pytest.approx(2.0 + 0.02 + 0.05)
    assert row.ended == pytest.approx(2.07 + 2 * 0.022)
    assert (row.ok, row.attempts, row.let_in) == (True, 1, 1)
    assert math.isnan(grpc)


def test_the_path_and_the_engines_speed_are_added() -> None:
    calls = cell(Call(2.0, 50, 3))
    (row,), _ = simulate(calls, replace(GROUND, path=0.01).slower(2.0), seed=1)
    assert row.heard == pytest.approx(2.0 + 2 * 0.07 + 0.01)


def test_a_full_step_decodes_in_all_slots() -> None:
    assert GROUND.full_step == pytest.approx(0.02 + 8 * 0.002)


def test_a_grpc_caller_sees_the_whole_answer_and_no_attempts() -> None:
    rows, grpc = simulate(cell(Call(1.0, 50, 3), Call(5.0, 50, 3, GRPC)), GROUND, seed=1)
    assert rows[1].heard is None
    assert (rows[1].sent, rows[1].attempts, rows[1].let_in) == (5.0, 0, 0)
    assert rows[1].ended == pytest.approx(5.07 + 2 * 0.022)
    assert grpc == 1.0


def test_a_stall_is_met_by_whoever_comes_in_it() -> None:
    calls = [Call(at, 20, 3, OPENAI) for at in (1.0, 4.5, 9.0)]
    rows, _ = simulate(cell(*calls, stall=(4.0, 8.0)), GROUND, seed=1)
    assert [row.attempts for row in rows] == [1, 2, 1]
    assert rows[1].heard is None or rows[1].heard >= 8.0


def test_equal_seeds_give_equal_figures_for_each_seed() -> None:
    calls = cell(*(Call(0.1 * n, 60, 20, (OPENAI, GRPC)[n % 2]) for n in range(100)))
    first = predicted(calls, GROUND, GROUND.prices, [1, 2])
    again = predicted(calls, GROUND, GROUND.prices, [1, 2])
    assert [repr(each) for each in first] == [repr(each) for each in again]
    assert 0.2 < first[0].success < 1.0
    assert first[0].attempts > 1.0
