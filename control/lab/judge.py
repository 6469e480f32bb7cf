"""A run's rows as arrays, each call judged: what it cost, and whether it was served as promised."""

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surgetank.control.lab.log import ABANDONED, OUTCOMES
from surgetank.control.lab.world import Run
from surgetank.telemetry.vocabulary import Outcome

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_OK = OUTCOMES.index(Outcome.OK)


@dataclass(frozen=True, slots=True)
class Judged:
    """One element per call, in order of arrival.

    A call is good when it was answered in full, its first token came within the TTFT target of the
    attempt that was served, and its tokens within the TPOT target. `cost` is in engine-seconds, by
    the engine's own step model: what is served late, or twice, counts once or not at all.
    """

    number: Ints
    arrived: Floats
    heard: Floats
    ended: Floats
    prompt: Ints
    output: Ints
    tenant: Ints
    priority: Ints
    ok: Flags
    good: Flags
    ttft: Floats
    tpot: Floats
    attempts: Ints
    admitted: Ints
    cost: Floats

    def between(self, begin: float, end: float) -> Flags:
        """The calls that arrived in [begin, end)."""
        return (self.arrived >= begin) & (self.arrived < end)

    def success(self, among: Flags) -> float:
        """Share of good calls; nan without calls."""
        return share(self.good[among])

    def goodput(self, begin: float, end: float) -> float:
        """Engine-seconds per second, of the good calls that ended in [begin, end)."""
        ended = self.good & (self.ended >= begin) & (self.ended < end)
        return float(self.cost[ended].sum()) / (end - begin)

    def cohort(self, begin: float, end: float) -> float:
        """Engine-seconds of the good calls that arrived in [begin, end)."""
        return float(self.cost[self.good & self.between(begin, end)].sum())


@dataclass(frozen=True, slots=True)
class Tries:
    """One element per attempt, in the order in which they ended."""

    call: Ints
    number: Ints
    at: Floats
    ended: Floats
    admitted: Flags
    served: Flags
    abandoned: Flags
    outcome: Ints
    reason: Ints
    advised: Floats
    taken: Floats
    ttft: Floats
    good: Flags


def judge(run: Run) -> Judged:
    """All calls of a run."""
    rows, slo = run.log.calls, run.scenario.slo
    order = np.argsort(_ints(rows.number), kind="stable")
    ttft, tpot = _floats(rows.ttft)[order], _floats(rows.tpot)[order]
    ok = _ints(rows.ok)[order] == 1
    prompt, output = _ints(rows.prompt)[order], _ints(rows.output)[order]
    return Judged(
        number=_ints(rows.number)[order],
        arrived=_floats(rows.arrived)[order],
        heard=_floats(rows.heard)[order],
        ended=_floats(rows.ended)[order],
        prompt=prompt,
        output=output,
        tenant=_ints(rows.tenant)[order],
        priority=_ints(rows.priority)[order],
        ok=ok,
        good=ok & _in_time(ttft, tpot, slo.ttft, slo.tpot),
        ttft=ttft,
        tpot=tpot,
        attempts=_ints(rows.attempts)[order],
        admitted=_ints(rows.admitted)[order],
        cost=costs(run, prompt, output),
    )


def tries(run: Run) -> Tries:
    """All attempts of a run that ended."""
    rows, slo = run.log.attempts, run.scenario.slo
    outcome = _ints(rows.outcome)
    served = outcome == _OK
    good = served & _in_time(_floats(rows.ttft), _floats(rows.tpot), slo.ttft, slo.tpot)
    return Tries(
        call=_ints(rows.call),
        number=_ints(rows.number),
        at=_floats(rows.at),
        ended=_floats(rows.ended),
        admitted=_ints(rows.admitted) == 1,
        served=served,
        abandoned=outcome == ABANDONED,
        outcome=outcome,
        reason=_ints(rows.reason),
        advised=_floats(rows.advised),
        taken=_floats(rows.taken),
        ttft=_floats(rows.ttft),
        good=good,
    )


def costs(run: Run, prompt: Ints, output: Ints) -> Floats:
    """Engine-seconds of each call, decoded in the batch that the engine could sustain on them."""
    if not len(prompt):
        return np.zeros(0)
    spec = run.scenario.engine
    model = spec.model
    batch = spec.batch(float(prompt.mean()), float(output.mean()), run.scenario.slo.tpot)
    context = prompt * output + output**2 / 2
    total: Floats = model.a * prompt + (model.t0 / batch + model.b) * output + model.c * context
    return total


def share(flags: Flags) -> float:
    """Of those that are true; nan of none."""
    return float(flags.mean()) if len(flags) else float("nan")


def quantile(values: Floats, q: float) -> float:
    """Linear between ranks, without nan; nan of none."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, q)) if len(known) else float("nan")


def _in_time(ttft: Floats, tpot: Floats, ttft_target: float, tpot_target: float) -> Flags:
    with np.errstate(invalid="ignore"):
        late: Flags = tpot > tpot_target  # nan (one token) is not late
        return (ttft <= ttft_target) & ~late


def _floats(column: "array[float]") -> Floats:
    return np.array(column, dtype=np.float64)


def _ints(column: "array[int]") -> Ints:
    return np.array(column, dtype=np.int64)
