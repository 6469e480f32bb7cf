"""How long a request would wait for its turn: predicted from work ahead of it and from silence.

    W = gamma * max(W_slot, W_pre) + age

W_slot, until a slot is free: 0 while slots and KV are free and nothing waits ahead, else the work
in the queue ahead (line.py) and one request's more: the running one whose end frees the slot. (With
B sequences of mean cost C, each served at mu/B, the first of them ends after C/mu; of a single one
what it has had since it was dispatched is done.)
W_pre, until its prompt is reached: prompt tokens ahead, in the engine and in the queue, at a full
chunk per step. A request waits for both at once, hence the larger of the two. Of several engines
each reads what it has, b_i tokens at r_i per second, and who is done first takes from the queue. So
its L tokens are read when the waterline t reaches

    sum_i max(0, t - b_i/r_i) * r_i = L       for L = 0: the least b_i/r_i

age, the engine's silence beyond what a step takes: a stall shows before anything else does.
gamma, an EWMA of a class's actual over predicted waits, within .5 to 2, takes up what is missed.
The request's own prompt is not in W: it would starve the long ones. It decides feasibility only.
"""

from collections.abc import Sequence

import msgspec

from surgetank.admission.engine_view import Rates
from surgetank.telemetry.vocabulary import Priority

GAMMA_RANGE = (0.5, 2.0)
_WEIGHT = 0.05
_WORTH = 0.05  # seconds: a shorter prediction says nothing about gamma


class Wait(msgspec.Struct, frozen=True):
    """W and what it is made of, in seconds."""

    slot: float
    prefill: float
    age: float
    gamma: float = 1.0

    @property
    def queueing(self) -> float:
        """The part that gamma corrects, uncorrected."""
        return max(self.slot, self.prefill)

    @property
    def seconds(self) -> float:
        """W."""
        return self.gamma * self.queueing + self.age

    @property
    def binding(self) -> str:
        """The term that W is most of."""
        if self.age >= self.gamma * self.queueing:
            return "age"
        return "slot" if self.slot >= self.prefill else "prefill"


def reading(rates: Rates, tokens: float) -> float:
    """W_pre of one engine, seconds: `tokens` are to be read before."""
    return tokens / rates.chunk * rates.chunk_seconds


def reading_shared(readers: Sequence[tuple[Rates, float]], queued: float) -> float:
    """W_pre of several engines, each with what it has unread; `queued` tokens wait for all. 0
    without any engine."""
    filling = sorted((reading(rates, unread), reading(rates, 1.0)) for rates, unread in readers)
    speed, left, level = 0.0, queued, filling[0][0] if filling else 0.0
    for at, each in filling:
        if (at - level) * speed >= left:
            break
        left -= (at - level) * speed
        level, speed = at, speed + 1.0 / max(1e-12, each)
    return level + (left / speed if speed else 0.0)


class Calibration:
    """gamma of each class: learned from those that got their turn."""

    def __init__(self) -> None:
        self._gamma = dict.fromkeys(Priority, 1.0)

    def gamma(self, priority: Priority) -> float:
        """What the class's predictions are to be multiplied with."""
        return self._gamma[priority]

    def observe(self, priority: Priority, predicted: float, actual: float) -> None:
        """A wait that was predicted (without gamma and age), and how long it was."""
        if predicted < _WORTH:
            return
        low, high = GAMMA_RANGE
        ratio = max(low, min(high, actual / predicted))
        self._gamma[priority] += _WEIGHT * (ratio - self._gamma[priority])
