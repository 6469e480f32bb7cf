"""How far apart those who were refused are told to come back."""

import random

import pytest
from tests.admission.rig import PlayedBackend

from surgetank.admission.cost import Estimate
from surgetank.admission.laws import Laws
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.pace import Pace
from surgetank.admission.queue import Queue
from surgetank.admission.retries import Retries
from surgetank.admission.retry_budget import RetryBudget
from surgetank.admission.routing.config import RoutingConfig
from surgetank.admission.routing.side import Attached
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.registry import Registry
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Outcome, Reason

BUSY = Refusal(Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "busy")
COST = 0.3  # engine-seconds of each request, of an engine that does one a second


def told(share: float, times: int) -> list[float | None]:
    """Seconds that so many are told to stay away, who are refused at once."""
    queue, sides = Queue(), Sides([Attached(PlayedBackend(ManualClock()))], RoutingConfig())
    limits = Limits({Limit.RETRY_SHARE: share})
    laws = Laws(
        config=LawsConfig(), targets=SloTargets(), limits=limits, queue=queue, sides=sides,
        pace=Pace(0.0),
    )  # fmt: skip
    retries = Retries(
        rng=random.Random(1),
        recorder=Recorder(Registry(Process.SIDECAR)),
        limits=limits,
        laws=laws,
        budget=RetryBudget(0.0, COST),
    )
    ticket = Ticket("t", 0.0, "http", estimate=Estimate(1.0, 1, COST))
    return [retries.advise(BUSY, ticket, 0.0, served=True).retry_after for _ in range(times)]


def test_those_who_return_bring_three_times_what_the_budget_has_room_for() -> None:
    slots = told(0.1, 9)
    for number, slot in enumerate(slots, 1):
        assert slot == pytest.approx(0.2 + number * 1.0, rel=0.11)
    assert None in told(0.1, 20), "nobody is told to wait for longer than 10 s"


def test_a_closed_lane_invites_nobody() -> None:
    assert told(0.0, 1) == [None]
