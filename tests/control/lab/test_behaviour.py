"""The waits of the client models that mirror real libraries, and calls that name their client."""

import random

import pytest

from surgetank.admission.outcome import Refusal
from surgetank.control.lab.behaviour import BEHAVIOURS
from surgetank.control.lab.clients import Crowd
from surgetank.control.lab.inputs import Item
from surgetank.control.lab.timeline import Timeline
from surgetank.telemetry.vocabulary import Outcome, Reason

BUSY = Refusal(Outcome.OVERLOAD, Reason.PREDICTED_WAIT, "busy", retry_after=1.5)
NEVER = Refusal(Outcome.OVERLOAD, Reason.PREDICTED_WAIT, "busy", retry_after=None)


class EverOpen:
    """Lets everybody in and answers nobody; keeps what each attempt said of itself."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []

    def open(self, caller: object, headers: object, ask: object, listener: object) -> "EverOpen":
        self.headers.append(dict(headers))  # type: ignore[call-overload]
        return self

    def cancel(self, outcome: object = None, reason: object = None) -> None:
        """Whoever gives up does."""


@pytest.mark.parametrize(
    ("name", "waits"),
    [("openai", [(0.375, 0.5), (0.75, 1.0), (1.5, 2.0)]), ("grpc", [(0.16, 0.24), (0.32, 0.48)])],
)
def test_backoff_without_a_hint_is_that_of_the_library(
    name: str, waits: list[tuple[float, float]]
) -> None:
    rng = random.Random(1)
    for retry, (least, most) in enumerate(waits, 1):
        drawn = [BEHAVIOURS[name].wait_before(retry, None, rng) for _ in range(200)]
        known = [wait for wait in drawn if wait is not None]
        assert len(known) == 200
        assert least <= min(known) < least + 0.1 * (most - least)
        assert most - 0.1 * (most - least) < max(known) <= most


@pytest.mark.parametrize("name", ["openai", "grpc"])
def test_a_hint_is_obeyed_to_the_millisecond_and_never_means_never(name: str) -> None:
    kind, rng = BEHAVIOURS[name], random.Random(1)
    assert kind.wait_before(1, BUSY, rng) == 1.5
    assert kind.wait_before(1, NEVER, rng) is None
    assert kind.wait_before(4, BUSY, rng) is None


def test_a_call_comes_from_the_client_that_it_names() -> None:
    timeline, door = Timeline(), EverOpen()
    mix = [(BEHAVIOURS["openai"], 1.0), (BEHAVIOURS["grpc"], 1.0)]
    crowd = Crowd(timeline, [door], mix, random.Random(1))
    crowd.play([Item(0.0, 3, 1, 1, client=name) for name in ("grpc", "openai", "grpc")])
    timeline.run(0.0)
    assert [sorted(each) for each in door.headers] == [
        ["x-stainless-retry-count", "x-surgetank-timeout"],
        ["x-stainless-read-timeout", "x-stainless-retry-count"],
        ["x-stainless-retry-count", "x-surgetank-timeout"],
    ]
