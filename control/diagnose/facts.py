"""The numbers that a verdict stands on, worked out once from the looks; nothing is judged here."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Self

from surgetank.admission.flow import Flow
from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.diagnose.hold import Cause, cause_of, waits
from surgetank.control.diagnose.look import Counts, Look
from surgetank.telemetry.stepmodel import step_seconds
from surgetank.telemetry.vocabulary import Outcome, Reason

RECENT = 10.0  # seconds: what is so at present
COUNTED = 30.0  # seconds: what has to be counted to be seen
_WORTH = 0.25  # of the threshold: a shorter wait is nobody's trouble

# Refusals that mean too much was asked of the service, not that something was asked wrongly.
LOAD = frozenset(
    {
        Reason.QUEUE_REQUESTS,
        Reason.QUEUE_TOKENS,
        Reason.PREDICTED_WAIT,
        Reason.KV_PRESSURE,
        Reason.BROWN_OUT,
        Reason.DEADLINE_ON_ARRIVAL,
    }
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Shares are 0 to 1; `recent` and `counted` are what their windows' looks and counts say."""

    now: DeskSnapshot
    recent: tuple[Look, ...]
    seconds: float  # that `flow` and `counts` cover, above 0
    flow: Flow
    counts: Counts
    lately: Counts  # of the recent looks alone
    retries_lately: int
    refusing: int  # recent looks before which something was refused for load
    waiting: int  # recent looks at which somebody waits, and long enough to matter
    causes: Counter[Cause]  # of the looks that tell; of all recent ones when none does
    telling: tuple[Look, ...]  # the recent ones with somebody waiting, or just refused

    @classmethod
    def of(cls, looks: tuple[Look, ...]) -> Self:
        """From looks, oldest first; at least one."""
        now = looks[-1].desk
        recent = _of_now([look for look in looks if now.at - look.desk.at <= RECENT])
        first = next(look for look in looks if now.at - look.desk.at <= COUNTED)
        pairs = [(look, _dropping(before, look)) for before, look in pairwise(recent)]
        telling = tuple(look for look, drops in pairs if drops or waits(look.desk))
        return cls(
            now=now,
            recent=recent,
            seconds=max(1e-3, now.at - first.desk.at),
            flow=now.flow.since(first.desk.flow),
            counts=looks[-1].counts.since(first.counts),
            lately=looks[-1].counts.since(recent[0].counts),
            retries_lately=now.flow.retries - recent[0].desk.flow.retries,
            refusing=sum(drops for _, drops in pairs),
            waiting=sum(map(_matters, recent)),
            causes=Counter(cause_of(look) for look in telling or recent),
            telling=telling,
        )

    def share(self, cause: Cause) -> float:
        """Of the looks that tell, how many name this cause."""
        return self.causes[cause] / max(1, self.causes.total())

    @property
    def attempts(self) -> int:
        """Arrivals whose body was known."""
        return self.flow.first + self.flow.retries

    @property
    def amplification(self) -> float:
        """Arrivals per first attempt; infinite when all are retries."""
        if not self.flow.first:
            return float("inf") if self.flow.retries else 1.0
        return self.attempts / self.flow.first

    @property
    def refused(self) -> int:
        """Turned away or dropped for load."""
        return dropped(self.counts)

    @property
    def refused_share(self) -> float:
        """Of the gate's decisions."""
        decided = self.counts.admitted + self.counts.refused.total()
        return min(1.0, self.refused / decided) if decided else 0.0

    def late(self, slo: str) -> float:
        """Of the requests judged against a target, the share that missed it."""
        good, bad = self.counts.judged[slo, "good"], self.counts.judged[slo, "bad"]
        return bad / (good + bad) if good + bad else 0.0

    @property
    def demand(self) -> float:
        """Engine-seconds per second that first attempts alone ask for, over what it delivers."""
        first = self.flow.first * self.now.laws.mean_cost / self.seconds
        return first / (self.now.laws.drain or 1.0)

    @property
    def disobeyed(self) -> float:
        """Of the retries that came back from a failure, those that did not wait as told."""
        returned = self.counts.returned
        total = returned.total()
        return 1.0 - returned["obeyed"] / total if total else 0.0

    @property
    def step(self) -> float | None:
        """Seconds of the newest step; None before any."""
        last = self.now.last_step
        return None if last is None else step_seconds(last)

    @property
    def waste(self) -> float:
        """Of the computed tokens, those lost to preemption."""
        return self.flow.preempted / self.flow.computed if self.flow.computed else 0.0


def dropped(counts: Counts) -> int:
    """Turned away or dropped for load."""
    by_gate = sum(counts.refused[reason] for reason in LOAD)
    return by_gate + counts.outcomes[Outcome.EXPIRED] + counts.outcomes[Outcome.EVICTED]


def _dropping(before: Look, after: Look) -> bool:
    return dropped(after.counts.since(before.counts)) > 0


def _of_now(looks: list[Look]) -> tuple[Look, ...]:
    """Those since an operator's value was last taken away: what came of it says nothing of now."""
    left = _overrides(looks[-1])
    return tuple(takewhile(lambda look: _overrides(look) <= left, reversed(looks)))[::-1]


def _overrides(look: Look) -> set[tuple[Limit, float]]:
    return {(view.name, view.current) for view in look.desk.limits if view.override is not None}


def _matters(look: Look) -> bool:
    age = look.desk.queue_oldest_age
    return age is not None and age > _WORTH * look.desk.laws.threshold
