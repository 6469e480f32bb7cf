"""Suspicion needs ten seconds of evidence; then the ramp goes from half to all, in five."""

from collections.abc import Mapping

import pytest
from tests.control.policies.conftest import Look

from surgetank.admission.flow import Flow
from surgetank.admission.gate import GateConfig
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limit
from surgetank.control.policies.recovery import Watch, step

CONFIG = GateConfig()


class Service:
    """Counts at constant rates, looked at four times a second."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.at = 0.0
        self.first = self.retries = self.ended = self.good = 0.0
        self.state = Watch()

    def run(
        self,
        seconds: float,
        *,
        first: float = 10.0,
        retries: float = 0.0,
        ended: float = 10.0,
        good: float = 10.0,
        **seen: float,
    ) -> list[float]:
        """The shares wanted, look by look; stops at the first that is below 1."""
        shares = []
        for _ in range(int(seconds / 0.25)):
            self.at += 0.25
            self.first += first / 4
            self.retries += retries / 4
            self.ended += ended / 4
            self.good += good / 4
            shares.append(self._step(**seen)[Limit.ADMISSION_SHARE])
            if shares[-1] < 1.0:
                break
        return shares

    def _step(self, **seen: float) -> Mapping[Limit, float]:
        counts = (int(each) for each in (self.first, self.retries, self.ended, self.good))
        snapshot = self.look(self.at, flow=Flow(*counts), **seen)
        self.state, wanted = step(self.state, CONFIG, snapshot)
        return wanted


def test_work_in_vain_for_ten_seconds_starts_the_ramp(look: Look) -> None:
    service = Service(look)
    assert set(service.run(30.0)) == {1.0}
    shares = service.run(20.0, good=3.0)
    assert shares[-1] == 0.5
    assert 5.0 < len(shares) * 0.25 < 11.0


@pytest.mark.parametrize(
    "circumstances",
    [
        {"good": 6.0},  # more than half is served
        {"good": 0.0, "queued": 0},  # nobody waits
        {"good": 0.0, "drain": 0.4},  # the engine is slow: that is the cause
        {"good": 0.0, "ended": 1.0},  # too little to judge by
        {"first": 10.0, "retries": 4.0},  # amplified by less than half
        {"first": 10.0, "retries": 20.0},  # amplified, but goodput holds
    ],
)
def test_what_is_no_metastable_failure_is_left_alone(
    look: Look, circumstances: dict[str, float]
) -> None:
    service = Service(look)
    service.run(30.0)
    assert set(service.run(40.0, **circumstances)) == {1.0}


def test_amplification_with_falling_goodput_starts_it_too(look: Look) -> None:
    service = Service(look)
    service.run(30.0)
    shares = service.run(20.0, first=10.0, retries=15.0, ended=10.0, good=5.5)
    assert shares[-1] == 0.5


def test_the_ramp_takes_five_seconds_with_the_lane_closed_and_then_lets_go(look: Look) -> None:
    service = Service(look)
    service.run(30.0)
    service.run(20.0, good=0.0)
    began, shares, lanes = service.at, [], []
    while service.state.ramp_since is not None:
        service.at += 0.25
        wanted = service._step()
        shares.append(wanted[Limit.ADMISSION_SHARE])
        lanes.append(wanted.get(Limit.RETRY_SHARE))
    assert shares == sorted(shares)
    assert (shares[0], shares[-2], shares[-1]) == (0.5, 0.9, 1.0)
    assert set(lanes[:-1]) == {0.0}
    assert lanes[-1] is None
    assert service.at - began == pytest.approx(5.0)
    assert set(service.run(9.0, good=0.0)) == {1.0}, "new evidence is needed"


def test_it_can_be_switched_off(look: Look) -> None:
    config = GateConfig(laws=LawsConfig(recovery=False))
    assert step(Watch(ramp_since=0.0), config, look(1.0)) == (Watch(), {})
