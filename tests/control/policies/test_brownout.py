"""The ladder climbs with pressure, stays for its dwell, comes down rung by rung, and obeys."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.policies.conftest import Look

from surgetank.admission.gate import GateConfig
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import SPECS, Limit, Override
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.policies.brownout import DWELL, ENTER, Ladder, climb, measures, step

CONFIG = GateConfig()
PERIOD = 0.25


def run(look: Look, state: Ladder, begin: float, seconds: float, **seen: float) -> Ladder:
    """So long under the same circumstances."""
    for tick in range(int(seconds / PERIOD)):
        state, _ = step(state, CONFIG, look(begin + tick * PERIOD, **seen))
    return state


def wanted(look: Look, state: Ladder, at: float, **seen: float) -> Mapping[Limit, float]:
    return step(state, CONFIG, look(at, **seen))[1]


@pytest.mark.parametrize(
    ("pressure", "rung"), [(0.5, 0), (0.75, 1), (0.9, 2), (1.05, 3), (1.15, 3), (1.5, 4)]
)
def test_lasting_pressure_leads_to_its_rung(look: Look, pressure: float, rung: int) -> None:
    assert run(look, Ladder(), 0.0, 30.0, pressure=pressure).rung == rung


def test_critical_only_takes_five_seconds_of_failed_predictions(look: Look) -> None:
    state = run(look, Ladder(), 0.0, 5.0, pressure=1.9)
    assert state.rung == 3
    assert run(look, state, 5.0, 2.0, pressure=1.9).rung == 4


def test_a_full_engine_is_no_broken_one(look: Look) -> None:
    assert run(look, Ladder(), 0.0, 20.0, kv=0.99, tpot=9.0).rung == 2
    assert run(look, Ladder(), 0.0, 20.0, kv=0.99, tpot=9.0, queued=0).rung == 0


def test_it_comes_down_one_rung_at_a_time_after_its_dwell(look: Look) -> None:
    state = run(look, Ladder(), 0.0, 10.0, pressure=1.05)
    assert state.rung == 3
    rungs = []
    for second in range(20):
        state = run(look, state, 10.0 + second, 1.0)
        rungs.append(state.rung)
    assert rungs == sorted(rungs, reverse=True)
    assert rungs[4] == 3
    assert [rungs.count(rung) for rung in (2, 1)] == [DWELL, DWELL]
    assert rungs[-1] == 0


def test_a_load_that_hovers_does_not_make_it_flap(look: Look) -> None:
    state, rungs = Ladder(), []
    for tick in range(400):
        pressure = 0.72 if tick // 8 % 2 else 0.66
        state, _ = step(state, CONFIG, look(tick * PERIOD, pressure=pressure))
        rungs.append(state.rung)
    assert sum(a != b for a, b in pairwise(rungs)) == 1


@pytest.mark.parametrize(
    ("known", "silence", "rung"),
    [
        (True, {"age": 6.0, "stalled_for": 14.0}, 4),
        (True, {"age": 4.0, "stalled_for": 12.0}, 0),  # its steps take long
        (False, {"stalled_for": 12.0}, 0),  # it may be reading the first prompt
        (False, {"stalled_for": 31.0}, 4),
    ],
)
def test_a_dead_silent_engine_means_critical_only_as_long_as_it_is_silent(
    look: Look, known: bool, silence: dict[str, float], rung: int
) -> None:
    during = wanted(look, Ladder(), 1.0, known=known, **silence)
    lowest = 0 if rung else 3
    assert (during[Limit.BROWNOUT_LEVEL], during[Limit.LOWEST_CLASS]) == (rung, lowest)
    after = wanted(look, Ladder(), 1.25, stalled_for=0.0)
    assert (after[Limit.BROWNOUT_LEVEL], after[Limit.LOWEST_CLASS]) == (0, 3)


def test_each_rung_takes_what_the_one_below_took_and_more() -> None:
    for name in (Limit.LOW_OUTPUT_TOKENS, Limit.SHEDDABLE_SHARE, Limit.RETRY_SHARE):
        values = [measures(rung, 0.9, CONFIG)[name] for rung in range(5)]
        assert values == sorted(values, reverse=True)
    assert [measures(rung, 0.9, CONFIG)[Limit.LOWEST_CLASS] for rung in range(5)] == [3, 3, 3, 3, 0]
    assert measures(2, ENTER[1], CONFIG)[Limit.SHEDDABLE_SHARE] == 1.0
    assert measures(2, 0.93, CONFIG)[Limit.SHEDDABLE_SHARE] == 0.5
    nothing = measures(0, 0.0, CONFIG)
    assert nothing[Limit.LOW_OUTPUT_TOKENS] == SPECS[Limit.LOW_OUTPUT_TOKENS].default
    assert nothing[Limit.RETRY_SHARE] == CONFIG.retry_share


def test_an_operators_rung_is_the_one_that_acts(look: Look) -> None:
    def overridden(snapshot: DeskSnapshot, rung: int) -> DeskSnapshot:
        held = Override(rung, until=99.0, who="op", why="test")
        limits = tuple(
            replace(view, current=rung, override=held)
            if view.name is Limit.BROWNOUT_LEVEL
            else view
            for view in snapshot.limits
        )
        return replace(snapshot, limits=limits)

    state = run(look, Ladder(), 0.0, 10.0, pressure=1.05)
    _, asked = step(state, CONFIG, overridden(look(10.0, pressure=1.05), 0))
    assert asked[Limit.BROWNOUT_LEVEL] == 3
    assert asked[Limit.RETRY_SHARE] == CONFIG.retry_share
    _, asked = step(Ladder(), CONFIG, overridden(look(10.0), 4))
    assert asked[Limit.LOWEST_CLASS] == 0


def test_it_can_be_switched_off(look: Look) -> None:
    config = GateConfig(laws=LawsConfig(brownout=False))
    assert step(Ladder(3), config, look(1.0, pressure=2.0)) == (Ladder(), {})


@given(st.lists(st.floats(0, 2), max_size=80))
def test_it_never_moves_more_than_one_rung_and_stays_on_the_ladder(pressures: list[float]) -> None:
    state = Ladder()
    for tick, x in enumerate(pressures):
        after = climb(state, x, tick * PERIOD)
        assert abs(after.rung - state.rung) <= 1
        assert 0 <= after.rung <= 4
        state = after
