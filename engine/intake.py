"""How requests come and are told off: submitted, refused, cancelled, expired, abandoned."""

import itertools
import math
import random
from dataclasses import replace

from surgetank.engine.api import GenerateRequest, Tokens
from surgetank.engine.fit import Capacity, misfit, too_large
from surgetank.engine.randomness import choice_seed
from surgetank.engine.roster import Roster
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import FinishReason


class ProtocolError(Exception):
    """The sidecar sent what makes no sense here, such as an id that is still in use."""


class Intake:
    """Stands before the roster. What it has to say waits in `answers` for the next output."""

    def __init__(
        self, roster: Roster, capacity: Capacity, eos_ids: tuple[int, ...], rng: random.Random
    ) -> None:
        self.answers: list[Tokens] = []
        self.capacity = capacity
        self._roster = roster
        self._eos_ids = frozenset(eos_ids)
        self._rng = rng
        self._arrivals = itertools.count()

    def submit(self, request: GenerateRequest, now: float) -> None:
        """Into the line, or refused at once. Raises ProtocolError."""
        if request.request_id in self._roster:
            raise ProtocolError(f"request id {request.request_id} is still in use")
        detail = misfit(request, self.capacity)
        if detail is None:
            self._roster.add(self._leader(request, now))
        else:
            self.turn_away(request, detail)

    def turn_away(self, request: GenerateRequest, detail: str) -> None:
        """Refuse each choice of a request that is not in the line."""
        self.answers += [
            Tokens(request.request_id, index, [], None, FinishReason.REFUSED, detail)
            for index in range(max(1, request.n))
        ]

    def cancel(self, request_id: int, index: int) -> None:
        """Silently out; -1 is every choice. What is not there has just ended: nothing to do."""
        for sequence in self._roster.choices(request_id, index):
            self._roster.remove(sequence)

    def expire(self, now: float) -> None:
        """Out with all whose deadline has passed, running or waiting."""
        for sequence in [each for each in self._roster if each.deadline <= now]:
            self.end(sequence, FinishReason.DEADLINE)

    def resize(self, sequences: int, kv_tokens: int) -> None:
        """New limits; the waiting that can never run under them are refused."""
        self.capacity = replace(self.capacity, sequences=sequences, kv_tokens=kv_tokens)
        for leader in list(self._roster.view.waiting):
            output = leader.sampling.max_tokens
            detail = too_large(leader.prompt_len, output, leader.width, self.capacity)
            if detail is not None:
                self.refuse(leader, detail)

    def abandon(self) -> int:
        """Nobody listens any more: all out, silently. Returns how many choices that were."""
        everyone = list(self._roster)
        for sequence in everyone:
            self._roster.remove(sequence)
        self.answers.clear()
        return len(everyone)

    def refuse(self, leader: Sequence, detail: str) -> None:
        """Out, with all that follow it."""
        for each in (leader, *leader.followers):
            self.end(each, FinishReason.REFUSED, detail)

    def end(self, sequence: Sequence, finish: FinishReason, detail: str = "") -> None:
        """Out, with an answer and no further token."""
        self._roster.remove(sequence)
        answer = Tokens(sequence.request_id, sequence.index, [], None, finish, detail)
        self.answers.append(answer)

    def _leader(self, request: GenerateRequest, now: float) -> Sequence:
        """The request's first choice, the others behind it. Without a seed it draws one."""
        sampling = request.sampling
        seed = self._rng.getrandbits(64) if sampling.seed is None else sampling.seed
        stop_ids = frozenset(sampling.stop_token_ids)
        tokens, order = list(request.prompt), next(self._arrivals)
        leader, *followers = [
            Sequence(
                request_id=request.request_id,
                index=index,
                tokens=tokens,
                prompt_len=len(tokens),
                sampling=sampling,
                seed=choice_seed(seed, index),
                stop_ids=stop_ids if sampling.ignore_eos else stop_ids | self._eos_ids,
                order=order,
                priority=request.priority,
                deadline=math.inf if request.time_left is None else now + request.time_left,
            )
            for index in range(request.n)
        ]
        leader.followers = followers
        for follower in followers:
            follower.leader = leader
        return leader
