"""The admin API's answers about policies, and how each is read from the stage."""

import math
from collections import Counter
from typing import Any

from pydantic import BaseModel, Field

from surgetank.admission.policies.canary import Arm, Compared
from surgetank.admission.policies.shadow import Seen
from surgetank.control.policies.plugins import Offer
from surgetank.control.trials import OFF, Held, Trials


class PolicyOut(BaseModel):
    """One policy of the table."""

    name: str
    kind: str | None = Field(description="admission or control; null: it cannot be used")
    state: str = Field(description="off, shadow, canary SHARE or live")
    meaning: str
    source: str = Field(description="the distribution that it comes from")
    problem: str | None = Field(description="why it cannot be used")
    who: str | None = Field(description="who put it there; null: off, or live by configuration")
    why: str | None
    expires_in: float | None = Field(description="seconds; null: at the process' end, or never")
    faults: int = Field(description="times it raised in its present part; at 5 it is off")
    last_rollback: str | None = Field(description="since the start: cause and reason")


class PoliciesOut(BaseModel):
    """All of them."""

    policies: list[PolicyOut]


class ShadowOut(BaseModel):
    """What a shadow said, beside what was done."""

    both_admit: int
    both_refuse: int
    would_refuse: int = Field(description="admitted by the live policy alone")
    would_admit: int = Field(description="refused by the live policy")
    agreement: float | None = Field(description="share of all decisions")
    would_refuse_reasons: dict[str, int]
    would_admit_reasons: dict[str, int] = Field(description="why the live policy refused them")
    would_refuse_ended: dict[str, int] = Field(description="how they ended: good, late, other")
    both_admit_ended: dict[str, int]


class ArmOut(BaseModel):
    """One share of a canary's calls, each judged by its first attempt."""

    calls: int
    refused: int
    good: int
    late: int
    other: int
    offered_seconds: float = Field(description="engine-seconds")
    goodput: float | None = Field(description="answered in time, of the engine-seconds offered")
    late_share: float | None = Field(description="of those admitted that ended")


class ComparedOut(BaseModel):
    """One window; evidence of 200 and more rolls back at the usual error rate of 1 %."""

    number: int
    live: ArmOut
    candidate: ArmOut
    evidence_goodput: float = Field(description="that the candidate answers less")
    evidence_late: float = Field(description="that it is late more often")


class CanaryOut(BaseModel):
    """How the candidate does."""

    share: float
    current: ComparedOut
    last: ComparedOut | None = Field(description="the window before")


class ProbationOut(BaseModel):
    """What was promoted last: of late, how many of those that it admitted came in time."""

    good: int
    late: int


class PolicyDetailOut(PolicyOut):
    """One policy, with what its present part has shown."""

    shadow: ShadowOut | None
    canary: CanaryOut | None
    probation: ProbationOut | None
    values: dict[str, float] | None = Field(description="limits a control policy on trial wants")


def policies_out(trials: Trials) -> PoliciesOut:
    """The table."""
    return PoliciesOut(
        policies=[PolicyOut(**_fields(trials, offer)) for offer in trials.table().values()]
    )


def policy_out(trials: Trials, name: str) -> PolicyDetailOut:
    """One of them; raises UnknownName."""
    stage, offer = trials.stage, trials.find(name)
    shadow, canary, tried = stage.shadows.get(name), stage.canary, trials.tried.get(name)
    watch = stage.probation
    if canary is not None and canary.part.name != name:
        canary = None
    return PolicyDetailOut(
        **_fields(trials, offer),
        shadow=None if shadow is None else _shadow_out(shadow.seen),
        canary=None
        if canary is None
        else CanaryOut(
            share=canary.share,
            current=_compared_out(canary.current),
            last=None if canary.last is None else _compared_out(canary.last),
        ),
        probation=None
        if watch is None or watch.name != name
        else ProbationOut(good=watch.good, late=watch.late),
        values=None if tried is None else {str(key): each for key, each in tried.wanted.items()},
    )


def _fields(trials: Trials, offer: Offer) -> dict[str, Any]:
    name = offer.name
    state = OFF if offer.problem else trials.state(name)
    held: Held | None = trials.held.get(name)
    return {
        "name": name,
        "kind": offer.kind,
        "state": state,
        "meaning": offer.help,
        "source": offer.source,
        "problem": offer.problem,
        "who": held and held.who,
        "why": held and held.why,
        "expires_in": None if held is None or held.until == math.inf else held.until - trials.now(),
        "faults": sum(part.faults for part in trials.stage.parts() if part.name == name),
        "last_rollback": trials.fallen.get(name),
    }


def _shadow_out(seen: Seen) -> ShadowOut:
    both, total = seen.decisions, sum(seen.decisions.values())
    agreed = both[True, True] + both[False, False]
    return ShadowOut(
        both_admit=both[True, True],
        both_refuse=both[False, False],
        would_refuse=both[True, False],
        would_admit=both[False, True],
        agreement=agreed / total if total else None,
        would_refuse_reasons=_named(seen.would_refuse),
        would_admit_reasons=_named(seen.would_admit),
        would_refuse_ended=_named(seen.refused_ended),
        both_admit_ended=_named(seen.admitted_ended),
    )


def _named(tally: Counter[Any]) -> dict[str, int]:
    return {str(key): count for key, count in tally.most_common()}


def _compared_out(window: Compared) -> ComparedOut:
    return ComparedOut(
        number=window.number,
        live=_arm_out(window.live),
        candidate=_arm_out(window.candidate),
        evidence_goodput=window.less_good.value,
        evidence_late=window.more_late.value,
    )


def _arm_out(arm: Arm) -> ArmOut:
    return ArmOut(
        calls=arm.calls,
        refused=arm.refused,
        good=arm.good,
        late=arm.late,
        other=arm.other,
        offered_seconds=arm.seconds,
        goodput=arm.goodput,
        late_share=arm.late_share,
    )
