"""Several engines behind one production gate, at a load that all of them together cannot serve."""

import random

import pytest

from surgetank.control.lab.faults import Fault, FaultKind
from surgetank.control.lab.inputs import Item, Mix, synthetic
from surgetank.control.lab.judge import judge
from surgetank.control.lab.log import OUTCOMES
from surgetank.control.lab.steptime import EngineSpec
from surgetank.control.lab.world import Run, Scenario, play
from surgetank.telemetry.vocabulary import Outcome

END = 15.0
MIX = Mix(prompt_median=300, prompt_sigma=0.8, output_median=60, max_tokens=256)
SPEC = EngineSpec(max_num_seqs=32)


def calls(load: float) -> list[Item]:
    """`load` times what one engine can serve."""
    rate = load * SPEC.capacity(*MIX.means(), 0.1)
    return synthetic(MIX, rate, 0.0, END, random.Random(3))


def run(behind: int, load: float, *faults: Fault) -> Run:
    scenario = Scenario(engine=SPEC, behind=behind, faults=faults, tail=10.0)
    return play(scenario, calls(load))


def goodput(played: Run) -> float:
    """Good answers, in engine-seconds per second."""
    return judge(played).goodput(0.0, END)


def test_three_engines_serve_three_times_as_much() -> None:
    one, three = run(1, 1.5), run(3, 4.5)
    assert goodput(three) > 2.8 * goodput(one)
    assert judge(three).good.mean() > 0.95 * judge(one).good.mean()


def test_one_of_three_that_stands_still_costs_its_part_and_no_more() -> None:
    stall = Fault(kind=FaultKind.STALL, at=5.0, seconds=5.0, engine=1)
    whole, hit = run(3, 2.0), run(3, 2.0, stall)
    assert goodput(hit) > 0.9 * goodput(whole)  # the other two suffice


def test_one_of_three_that_dies_ends_only_what_it_had_begun() -> None:
    crash = Fault(kind=FaultKind.CRASH, at=5.0, seconds=3.0, engine=0)
    played = run(3, 2.0, crash)
    down = OUTCOMES.index(Outcome.BACKEND_DOWN)
    lost = sum(outcome == down for outcome in played.log.attempts.outcome)
    assert 0 < lost <= 32


def test_a_slow_one_of_three_makes_nobody_late() -> None:
    slow = Fault(kind=FaultKind.SLOW, at=3.0, seconds=10.0, value=4.0, engine=2)
    whole, hit = run(3, 2.0), run(3, 2.0, slow)
    assert goodput(hit) > 0.85 * goodput(whole)


def test_rivals_know_one_engine() -> None:
    with pytest.raises(ValueError, match="behind is 2; allowed with policy none: 1"):
        Scenario(policy="none", behind=2)
