"""Too much computed twice cuts what is promised of the KV pool; calm gives it back slowly."""

import pytest
from tests.control.policies.conftest import Look

from surgetank.admission.flow import Flow
from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit
from surgetank.control.policies.waste import LEAST, Budget, step

CONFIG = GateConfig()


def run(look: Look, state: Budget, begin: int, seconds: int, waste: float) -> tuple[Budget, float]:
    """So long at 1,000 tokens a second, of which a share is computed twice."""
    share = 0.0
    for second in range(begin, begin + seconds):
        flow = Flow(computed=1000 * second, preempted=int(1000 * waste * (second - begin)))
        state, wanted = step(state, CONFIG, look(float(second), flow=flow))
        share = wanted[Limit.KV_RESERVE]
        assert wanted[Limit.KV_RESERVE_LOW] <= wanted[Limit.KV_RESERVE]
    return state, share


def test_calm_leaves_the_configured_shares(look: Look) -> None:
    assert run(look, Budget(), 0, 20, waste=0.02)[1] == CONFIG.kv_reserve


def test_waste_cuts_to_half_at_the_least_and_calm_gives_back(look: Look) -> None:
    state, share = run(look, Budget(), 0, 4, waste=0.3)
    assert share == pytest.approx(CONFIG.kv_reserve * 0.9**3, rel=0.02)
    state, share = run(look, state, 100, 30, waste=0.3)
    assert share == pytest.approx(CONFIG.kv_reserve * LEAST)
    state, share = run(look, state, 200, 11, waste=0.0)
    assert share == pytest.approx(CONFIG.kv_reserve * 0.61, rel=0.02)
    assert run(look, state, 300, 60, waste=0.0)[1] == CONFIG.kv_reserve


def test_one_bad_second_cuts_once(look: Look) -> None:
    state, shares = Budget(), []
    for second in range(20):
        flow = Flow(computed=1000 * second, preempted=900 if second >= 5 else 0)
        state, wanted = step(state, CONFIG, look(float(second), flow=flow))
        shares.append(wanted[Limit.KV_RESERVE] / CONFIG.kv_reserve)
    assert shares[4:7] == pytest.approx([1.0, 0.9, 0.91])
    assert shares[-1] == pytest.approx(1.0)


def test_an_idle_engine_wastes_nothing(look: Look) -> None:
    state = Budget()
    for second in range(20):
        state, wanted = step(state, CONFIG, look(float(second)))
    assert wanted[Limit.KV_RESERVE] == CONFIG.kv_reserve
