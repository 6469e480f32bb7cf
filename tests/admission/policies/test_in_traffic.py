"""Policies on trial in virtual time, with more load than can be served: which fall, which stay."""

import pytest
from tests.admission.virtual_engine import Service

from surgetank.admission.policies.canary import Canary, CanaryConfig
from surgetank.admission.policies.part import Part
from surgetank.admission.policies.probation import Probation

OVERLOAD = 70.0  # requests a second; some 42 can be served
CONFIG = CanaryConfig()


def warm(name: str) -> tuple[Service, Part]:
    """A service whose step model is fitted, and a policy to put there."""
    service = Service()
    service.warm_up()
    return service, Part(name, service.desk.policies.fresh(name), service.desk.limits)


def falls(service: Service, seconds: float) -> str | None:
    """Why it was to be rolled back, looked at all the time; None: it stayed."""
    stage = service.desk.policies
    for number, _ in enumerate(service.arrivals(OVERLOAD, seconds)):
        service.send()
        if number % 10:
            continue
        if stage.probation is not None and stage.probation.late_too_often():
            return "late"
        cause = stage.canary and stage.canary.worse(service.clock.monotonic())
        if cause:
            return cause
    return None


@pytest.mark.parametrize(
    ("name", "cause"), [("static-in-flight", "goodput"), ("envoy", "goodput"), ("laws", None)]
)
def test_canaries(name: str, cause: str | None) -> None:
    service, part = warm(name)
    stage = service.desk.policies
    stage.canary = Canary(part, 0.2, CONFIG, salt=name, now=service.clock.monotonic())
    stage.changed()
    assert falls(service, 20.0) == cause


@pytest.mark.parametrize(("name", "cause"), [("none", "late"), ("laws", None)])
def test_promoted(name: str, cause: str | None) -> None:
    """As a canary `none` does well: the others hold back for both."""
    service, part = warm(name)
    stage = service.desk.policies
    stage.canary = Canary(part, 0.2, CONFIG, salt=name, now=service.clock.monotonic())
    stage.changed()
    assert falls(service, 10.0) is None
    stage.live, stage.canary = part, None
    stage.probation = Probation(name, CONFIG, service.clock.monotonic())
    stage.changed()
    assert falls(service, 20.0) == cause
