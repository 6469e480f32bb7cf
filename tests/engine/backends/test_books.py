"""Our count and the engine's are compared at the same moment, whatever is on its way between."""

import random
from collections import deque

import pytest
from tests.fakes import step_record

from surgetank.engine.api import Commands, GenerateRequest, SamplingParams, StepOutput, Tokens
from surgetank.engine.backends.books import Books
from surgetank.engine.wire import WireError
from surgetank.telemetry.vocabulary import FinishReason

STEP = 0.002  # seconds
LATE = 0.08  # seconds that a message may take: forty steps
Choice = tuple[int, int]  # request id, index


def request(request_id: int, n: int = 1) -> GenerateRequest:
    return GenerateRequest(
        request_id=request_id, prompt=[5], sampling=SamplingParams(max_tokens=9), n=n
    )


def output(heard: int, has: int | None, *ended: Choice) -> StepOutput:
    tokens = [Tokens(*choice, [], None, FinishReason.STOP) for choice in ended]
    record = None if has is None else step_record(running=(0, has, 0, 0))
    return StepOutput(tokens, [], record, heard=heard)


class Storm:
    """A sidecar whose clients come and give up all the time, and an engine of steps of 2 ms; what
    they send each other takes a while, and comes in its order. Request 0 goes on for ever."""

    def __init__(self) -> None:
        self.rng = random.Random(3)
        self.now = 0.0
        self.books = Books()
        self.has: set[Choice] = set()  # the engine
        self.drifts: list[int | None] = []
        self.most_apart = 0  # between what the clients want now and what the engine has
        self._wanted: dict[int, int] = {}
        self._heard = self._ids = 0
        self._to_engine = deque([(0.0, Commands([request(0)]))])
        self.books.sent(self._to_engine[0][1])
        self._to_sidecar: deque[tuple[float, StepOutput]] = deque()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += STEP
            self._sidecar()
            self._engine()
            apart = abs(sum(self._wanted.values()) + 1 - len(self.has))
            self.most_apart = max(self.most_apart, apart)

    def _sidecar(self) -> None:
        while self._to_sidecar and self._to_sidecar[0][0] <= self.now:
            told = self._to_sidecar.popleft()[1]
            self.books.told(told)
            self.drifts.append(self.books.drift)
        come = [
            request(self._next(), self.rng.randint(1, 3)) for _ in range(self.rng.randint(0, 2))
        ]
        gone = [each for each in self._wanted if self.rng.random() < 0.02]
        for each in gone:
            del self._wanted[each]
        self._wanted |= {each.request_id: each.n for each in come}
        one = [(each, 0) for each in self._wanted if self.rng.random() < 0.005]
        message = Commands(come, [(each, -1) for each in gone] + one)
        if message != Commands():
            self.books.sent(message)
            self._to_engine.append((self._arrives(self._to_engine), message))

    def _engine(self) -> None:
        while self._to_engine and self._to_engine[0][0] <= self.now:
            message = self._to_engine.popleft()[1]
            self._heard += 1
            self.has |= {(each.request_id, at) for each in message.submit for at in range(each.n)}
            for cancel in message.cancel:
                self.has -= {each for each in self.has if cancel in (each, (each[0], -1))}
        ended = [each for each in sorted(self.has) if each[0] > 0 and self.rng.random() < 0.02]
        self.has -= set(ended)
        told = output(self._heard, len(self.has), *ended)
        self._to_sidecar.append((self._arrives(self._to_sidecar), told))

    def _arrives(
        self, line: deque[tuple[float, Commands]] | deque[tuple[float, StepOutput]]
    ) -> float:
        return max(self.now + self.rng.uniform(0.0, LATE), line[-1][0] if line else 0.0)

    def _next(self) -> int:
        self._ids += 1
        return self._ids


def test_a_storm_at_steps_of_two_milliseconds_is_no_drift() -> None:
    storm = Storm()
    storm.run(20.0)
    assert len(storm.drifts) > 9_000
    assert set(storm.drifts) == {0}
    assert storm.most_apart > 20  # which comparing both as they are now would have shown


def test_one_choice_that_is_lost_in_the_storm_is_seen_in_every_record() -> None:
    storm = Storm()
    storm.run(2.0)
    storm.has.remove((0, 0))
    storm.run(2.0)
    assert set(storm.drifts[-900:]) == {1}


def test_so_are_those_that_somebody_else_has_there() -> None:
    storm = Storm()
    storm.run(2.0)
    storm.has |= {(-1, 0), (-1, 1)}
    storm.run(2.0)
    assert set(storm.drifts[-900:]) == {-2}


def test_a_record_counts_only_what_had_been_heard_and_what_had_not_ended() -> None:
    books = Books()
    books.sent(Commands([request(1, n=2), request(2)]))
    books.told(output(0, None))
    assert books.drift is None
    books.told(output(0, 0))
    assert books.drift == 0  # it has not heard of them
    books.told(output(1, 3))
    assert books.drift == 0
    books.sent(Commands(cancel=[(1, 1), (9, -1)]))
    books.told(output(1, 2, (1, 1)))  # ended before the cancel came
    books.told(output(2, 2))
    assert books.drift == 0
    books.sent(Commands(cancel=[(1, -1), (2, -1)]))
    books.told(output(2, 2))
    assert books.drift == 0
    books.told(output(3, 1))
    assert books.drift == -1  # one that nobody sent, or that did not go


def test_an_answer_to_what_was_never_sent_ends_the_connection() -> None:
    books = Books()
    books.sent(Commands([request(1)]))
    with pytest.raises(WireError, match="heard 2 messages, 2 of them of late"):
        books.told(output(2, 0))
