"""Simulated clients of our helpers do what the helpers do: their waits, budget and ends."""

import random

import pytest

from surgetank.admission.client.hints import NOTHING
from surgetank.admission.client.retrier import Retrier, RetryPolicy
from surgetank.admission.outcome import Refusal
from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour, Unhinted
from surgetank.control.lab.clients import Crowd
from surgetank.control.lab.helpers import advice
from surgetank.control.lab.inputs import Item
from surgetank.control.lab.timeline import Timeline
from surgetank.telemetry.vocabulary import Outcome, Reason

PLAIN = Unhinted(Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "full")
LATER = Refusal(Outcome.OVERLOAD, Reason.PREDICTED_WAIT, "full", retry_after=1.23456)
NEVER = Refusal(Outcome.RETRY_BUDGET, Reason.RETRY_BUDGET, "spent")
INVALID = Refusal(Outcome.INVALID, Reason.BAD_REQUEST, "bad")


class Wall:
    """Refuses everybody alike, or keeps them waiting; writes down when each came."""

    def __init__(self, timeline: Timeline, answer: Refusal | None) -> None:
        self.times: list[float] = []
        self.said: list[dict[str, str]] = []
        self._timeline = timeline
        self._answer = answer

    def open(self, caller: object, headers: object, ask: object, listener: object) -> object:
        self.times.append(self._timeline.monotonic())
        self.said.append(dict(headers))  # type: ignore[call-overload]
        return self if self._answer is None else self._answer

    def cancel(self, outcome: object = None, reason: object = None) -> None:
        """Whoever gives up does."""


def against(answer: Refusal | None, kind: str | Behaviour, items: list[Item]) -> Wall:
    timeline = Timeline()
    wall = Wall(timeline, answer)
    client = BEHAVIOURS[kind] if isinstance(kind, str) else kind
    crowd = Crowd(timeline, [wall], [(client, 1.0)], random.Random(9))  # type: ignore[list-item]
    crowd.play(items)
    timeline.run(1000.0)
    return wall


def test_waits_are_those_that_the_helper_draws() -> None:
    shipped = Retrier(clock=Timeline(), rng=random.Random(9)).begin()
    at, expected = 1.0, [1.0]
    while (wait := shipped.next(NOTHING)) is not None:
        expected.append(at := at + wait)
    assert len(expected) == RetryPolicy().attempts
    for kind in ("obedient", "backoff"):
        wall = against(PLAIN, kind, [Item(1.0, 3, 1, 1)])
        assert wall.times == expected
        assert [said["x-surgetank-attempt"] for said in wall.said] == ["0", "1", "2"]


def test_one_client_spends_one_budget_over_all_its_calls() -> None:
    items = [Item(5.0, 3, 1, 1, tenant=tenant) for tenant in "aab" for _ in range(200)]
    wall = against(PLAIN, "obedient", items)
    # A tenth of a retry for each call and five from the floor; some come by until the last is told.
    assert 600 + (40 + 5) + (20 + 5) <= len(wall.times) <= 600 + (40 + 5) + (20 + 5) + 2


def test_a_hint_is_read_as_the_door_writes_it() -> None:
    assert against(LATER, "obedient", [Item(1.0, 3, 1, 1)]).times == pytest.approx(
        [1.0, 2.235, 3.47], abs=1e-9
    )
    assert against(NEVER, "obedient", [Item(1.0, 3, 1, 1)]).times == [1.0]


def test_without_hints_a_refusal_is_only_its_status() -> None:
    assert advice(NEVER, 0.0, hinted=False) == NOTHING
    assert advice(INVALID, 0.0, hinted=False) is None
    assert len(against(NEVER, "backoff", [Item(1.0, 3, 1, 1)]).times) == 3


def test_after_a_timeout_the_work_may_still_go_on() -> None:
    assert against(None, "obedient", [Item(1.0, 3, 1, 1)]).times == [1.0]


def test_no_sleep_that_cannot_fit_the_deadline() -> None:
    hasty = BEHAVIOURS["obedient"].model_copy(update={"patience": 2.0})
    wall = against(LATER, hasty, [Item(1.0, 3, 1, 1)])
    assert wall.times == pytest.approx([1.0, 2.235])
    assert wall.said[1]["x-surgetank-timeout"] == "0.765"


def test_what_the_helpers_do_not_allow_is_told() -> None:
    with pytest.raises(ValueError, match="attempts is 21; allowed: 1 to 10"):
        Behaviour(name="stubborn", retries=20, wait="helper")
