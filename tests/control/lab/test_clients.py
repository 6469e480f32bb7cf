"""Clients against a door that the test plays: how often they come, when, and what is written."""

import math
import random
from dataclasses import dataclass, field

import pytest

from surgetank.admission.api import Ask, Delta, End, Headers, Listener
from surgetank.admission.outcome import Refusal
from surgetank.control.lab.behaviour import BEHAVIOURS, Behaviour, Unhinted
from surgetank.control.lab.clients import Crowd
from surgetank.control.lab.entrance import Caller, Handle
from surgetank.control.lab.inputs import Item
from surgetank.control.lab.log import ABANDONED, OUTCOMES
from surgetank.control.lab.timeline import Timeline
from surgetank.telemetry.vocabulary import Outcome, Reason


@dataclass
class Inside:
    """A request that was let in."""

    listener: Listener
    cancelled: bool = False

    def cancel(
        self, outcome: Outcome = Outcome.CANCELLED, reason: Reason = Reason.CLIENT_GONE
    ) -> None:
        self.cancelled = True


@dataclass
class PlayedDoor:
    """Answers the n-th attempt with the n-th of `answers`, None lets in; later ones are let in."""

    timeline: Timeline
    answers: list[Refusal | None] = field(default_factory=list)
    came: list[tuple[float, dict[str, str]]] = field(default_factory=list)
    inside: list[Inside] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)

    def open(
        self, caller: Caller, headers: Headers, ask: Ask, listener: Listener
    ) -> Handle | Refusal:
        number = len(self.came)
        self.callers.append(caller)
        self.came.append((self.timeline.monotonic(), dict(headers)))
        answer = self.answers[number] if number < len(self.answers) else None
        if answer is not None:
            return answer
        self.inside.append(Inside(listener))
        return self.inside[-1]


class Rig:
    """One call of 10 prompt and 5 output tokens at 1 s."""

    def __init__(self, client: Behaviour, answers: list[Refusal | None]) -> None:
        self.timeline = Timeline()
        self.door = PlayedDoor(self.timeline, answers)
        self.crowd = Crowd(self.timeline, [self.door], [(client, 1.0)], random.Random(4))
        self.crowd.play([Item(1.0, 10, 5, 8)])

    def run(self, until: float = 100.0) -> None:
        self.timeline.run(until)
        self.crowd.close()

    def serve(self, at: float, number: int, first: float) -> None:
        """The `number`-th inside gets its first token `first` s after `at`, all 1 s later."""

        def tokens(count: int) -> None:
            self.door.inside[number].listener.on_delta(Delta(0, "", [0] * count, None, None))

        def end() -> None:
            tokens(4)
            self.door.inside[number].listener.on_end(End(Outcome.OK, None, 10, 5, 0))

        self.timeline.call_at(at + first, lambda: tokens(1))
        self.timeline.call_at(at + first + 1.0, end)

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.door.came]


OVERLOAD = Refusal(Outcome.OVERLOAD, Reason.PREDICTED_WAIT, "full", retry_after=2.5)
NEVER = Refusal(Outcome.RETRY_BUDGET, Reason.RETRY_BUDGET, "spent")
INVALID = Refusal(Outcome.INVALID, Reason.BAD_REQUEST, "bad")
PLAIN = Unhinted(Outcome.OVERLOAD, Reason.QUEUE_REQUESTS, "full")


def test_a_call_that_is_served() -> None:
    rig = Rig(BEHAVIOURS["no-retry"], [])
    rig.serve(1.0, 0, first=0.5)
    rig.run()
    calls = rig.crowd.log.calls
    assert list(calls.ok) == [1]
    assert calls.ttft[0] == pytest.approx(0.5)
    assert calls.tpot[0] == pytest.approx(1.0 / 4)
    assert (calls.ended[0], calls.heard[0]) == (2.5, 1.5)
    assert (calls.attempts[0], calls.admitted[0]) == (1, 1)


@pytest.mark.parametrize(("name", "attempts"), [("no-retry", 1), ("immediate-1", 2)])
def test_a_refused_client_comes_back_as_often_as_it_does(name: str, attempts: int) -> None:
    rig = Rig(BEHAVIOURS[name], [OVERLOAD] * 5)
    rig.run()
    assert rig.times == [1.0] * attempts
    assert list(rig.crowd.log.calls.ok) == [0]
    assert list(rig.crowd.log.calls.admitted) == [0]


def test_the_obedient_wait_exactly_as_long_as_they_are_told() -> None:
    rig = Rig(BEHAVIOURS["obedient"], [OVERLOAD, OVERLOAD, NEVER])
    rig.run()
    assert rig.times == [1.0, 3.5, 6.0]
    attempts = rig.crowd.log.attempts
    assert list(attempts.advised[:2]) == list(attempts.taken[:2]) == [2.5, 2.5]
    assert math.isnan(attempts.advised[2])


def test_without_a_hint_the_obedient_back_off_by_themselves() -> None:
    rig = Rig(BEHAVIOURS["obedient"], [PLAIN] * 4)
    rig.run()
    waits = [after - before for before, after in zip(rig.times, rig.times[1:], strict=False)]
    assert len(waits) == 2
    assert all(0.05 <= wait <= 0.2 * 2**number for number, wait in enumerate(waits))


def test_others_do_not_mind_what_they_are_told() -> None:
    rig = Rig(BEHAVIOURS["immediate-3"], [NEVER] * 5)
    rig.run()
    assert rig.times == [1.0] * 4


def test_a_clients_own_mistake_is_not_retried() -> None:
    rig = Rig(BEHAVIOURS["immediate-3"], [INVALID])
    rig.run()
    assert rig.times == [1.0]


def test_who_wants_it_in_one_piece_has_heard_nothing_before_its_end() -> None:
    whole = BEHAVIOURS["immediate-1"].model_copy(update={"streams": False, "timeout": 1.2})
    rig = Rig(whole, [])
    rig.serve(1.0, 0, first=0.5)  # complete after 1.5 s
    rig.serve(2.2, 1, first=0.1)
    rig.run()
    assert rig.times == [1.0, 2.2]
    assert [each.cancelled for each in rig.door.inside] == [True, False]
    assert [caller.streams for caller in rig.door.callers] == [False, False]
    assert list(rig.crowd.log.calls.ok) == [1]


def test_a_timeout_leaves_and_retries() -> None:
    rig = Rig(BEHAVIOURS["immediate-1"], [])
    rig.serve(5.0, 1, first=0.5)
    rig.run()
    assert rig.times == [1.0, 5.0]
    assert [each.cancelled for each in rig.door.inside] == [True, False]
    calls, attempts = rig.crowd.log.calls, rig.crowd.log.attempts
    assert (calls.ok[0], calls.admitted[0], calls.arrived[0]) == (1, 2, 1.0)
    assert calls.ttft[0] == pytest.approx(0.5)  # of the attempt; its user waited since 1.0
    assert calls.heard[0] - calls.arrived[0] == pytest.approx(4.5)
    assert list(attempts.outcome) == [ABANDONED, OUTCOMES.index(Outcome.OK)]


def test_after_the_first_token_there_is_neither_timeout_nor_retry() -> None:
    rig = Rig(BEHAVIOURS["immediate-3"], [])
    lost = Refusal(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, "gone", retry_after=1.0)
    first = Delta(0, "", [0], None, None)
    rig.timeline.call_at(2.0, lambda: rig.door.inside[0].listener.on_delta(first))
    end = End(Outcome.BACKEND_DOWN, lost, 10, 1, 0)
    rig.timeline.call_at(50.0, lambda: rig.door.inside[0].listener.on_end(end))
    rig.run()
    assert rig.times == [1.0]
    assert list(rig.crowd.log.calls.ok) == [0]
    assert rig.crowd.log.calls.ended[0] == 50.0


def test_no_sleep_that_outlasts_the_clients_patience() -> None:
    client = BEHAVIOURS["obedient"].model_copy(update={"patience": 3.0})
    rig = Rig(client, [OVERLOAD, OVERLOAD])
    rig.run()
    assert rig.times == [1.0, 3.5]
    assert rig.door.came[1][1]["x-surgetank-timeout"] == "0.500"


def test_attempts_say_which_they_are_unless_they_are_silent() -> None:
    loud, silent = Rig(BEHAVIOURS["immediate-1"], [PLAIN]), Rig(BEHAVIOURS["silent"], [PLAIN])
    loud.run()
    silent.run()
    assert [said["x-stainless-retry-count"] for _, said in loud.door.came] == ["0", "1"]
    assert loud.door.came[0][1]["x-stainless-read-timeout"] == "4"
    assert [said for _, said in silent.door.came[:2]] == [{}, {}]


def test_retries_carry_the_prompt_of_their_call() -> None:
    timeline = Timeline()
    prompts: list[list[int]] = []

    @dataclass
    class Reader:
        def open(
            self, caller: Caller, headers: Headers, ask: Ask, listener: Listener
        ) -> Handle | Refusal:
            prompts.append(ask.prompt)
            return PLAIN

    crowd = Crowd(timeline, [Reader()], [(BEHAVIOURS["silent"], 1.0)], random.Random(0))
    crowd.play([Item(0.0, 3, 1, 1), Item(1.0, 3, 1, 1)])
    timeline.run(5.0)
    assert prompts[:4] == [[0, 0, 0]] * 4
    assert prompts[4:] == [[1, 0, 0]] * 4


def test_what_is_open_at_the_end_is_not_served() -> None:
    rig = Rig(BEHAVIOURS["patient"], [])
    rig.run(until=10.0)
    assert list(rig.crowd.log.calls.ok) == [0]
    assert math.isnan(rig.crowd.log.calls.ended[0])
    rig.door.inside[0].listener.on_end(End(Outcome.OK, None, 10, 5, 0))  # too late to be heard
    assert len(rig.crowd.log.calls.ok) == 1
