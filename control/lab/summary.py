"""A run in numbers: what its users got, what its door did, what its engines wasted."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from surgetank.control.lab.judge import Judged, Tries, judge, quantile, share, tries
from surgetank.control.lab.log import OUTCOMES, REASONS
from surgetank.control.lab.world import Run
from surgetank.telemetry.vocabulary import Outcome, Priority


@dataclass(frozen=True, slots=True)
class Group:
    """What one tenant or class got."""

    name: str
    calls: int
    success: float
    served: float  # engine-seconds of answered calls
    ttft_p50: float
    ttft_p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Shares are 0 to 1, times seconds, `cost` engine-seconds per second; nan: nothing to say."""

    policy: str
    seed: int
    calls: int
    answered: int
    good: int
    success: float  # good calls of all
    goodput: float  # good calls per second
    goodput_cost: float  # of good calls that ended before the last one arrived
    offered_cost: float
    attempts_per_call: float
    admitted_per_call: float
    late: float  # admitted attempts that were not good, but for those that their client left early
    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float
    duration_p50: float  # of answered calls, from the first attempt
    duration_p99: float
    quartiles: tuple[float, ...]  # success by size of prompt, the smallest first
    obedience: float  # median of taken / advised wait
    engine_busy: float  # share of the time
    preemptions: int
    recomputed: float  # share of computed tokens
    classes: tuple[Group, ...]
    tenants: tuple[Group, ...]
    reasons: dict[str, int]  # refused or failed attempts


def summarise(run: Run) -> Summary:
    """Everything of a run's calls, by when they arrived."""
    calls, attempts = judge(run), tries(run)
    seconds = max(run.duration, 1e-9)
    totals = run.engines
    computed = sum(t.prefill_tokens + t.decode_tokens for t in totals)
    duration = np.where(calls.ok, calls.ended - calls.arrived, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        obedience = attempts.taken / attempts.advised
    return Summary(
        policy=run.scenario.policy,
        seed=run.scenario.seed,
        calls=len(calls.number),
        answered=int(calls.ok.sum()),
        good=int(calls.good.sum()),
        success=share(calls.good),
        goodput=float(calls.good.sum()) / seconds,
        goodput_cost=calls.goodput(0.0, seconds),
        offered_cost=float(calls.cost.sum()) / seconds,
        attempts_per_call=_ratio(int(calls.attempts.sum()), len(calls.number)),
        admitted_per_call=_ratio(int(calls.admitted.sum()), len(calls.number)),
        late=missed(attempts),
        ttft_p50=quantile(calls.ttft, 0.5),
        ttft_p99=quantile(calls.ttft, 0.99),
        tpot_p50=quantile(calls.tpot, 0.5),
        tpot_p99=quantile(calls.tpot, 0.99),
        duration_p50=quantile(duration, 0.5),
        duration_p99=quantile(duration, 0.99),
        quartiles=quartiles(calls),
        obedience=quantile(obedience, 0.5),
        engine_busy=sum(t.busy for t in totals) / len(totals) / (seconds + run.scenario.tail),
        preemptions=sum(t.preemptions for t in totals),
        recomputed=_ratio(sum(t.recomputed_tokens for t in totals), computed),
        classes=tuple(_classes(calls)),
        tenants=tuple(_tenants(run, calls)),
        reasons=_reasons(attempts),
    )


def missed(attempts: Tries) -> float:
    """Of the attempts that were let in and not left by their client: those that were not good."""
    kept = attempts.admitted & ~attempts.abandoned & (attempts.outcome != _CANCELLED)
    return share(~attempts.good[kept])


def quartiles(calls: Judged) -> tuple[float, ...]:
    """Success in each quarter of the calls by size of prompt; equal sizes stay in order."""
    if len(calls.number) < 4:
        return ()
    by_size = np.argsort(calls.prompt, kind="stable")
    return tuple(share(calls.good[part]) for part in np.array_split(by_size, 4))


def as_json(summary: Summary) -> dict[str, Any]:
    """Plain values: six digits, and null for what is not there."""
    return {key: _plain(value) for key, value in asdict(summary).items()}


_CANCELLED = OUTCOMES.index(Outcome.CANCELLED)


def _classes(calls: Judged) -> Iterator[Group]:
    for priority in Priority:
        group = _group(calls, priority.label, calls.priority == priority)
        if group.calls:
            yield group


def _tenants(run: Run, calls: Judged) -> Iterator[Group]:
    for number, name in enumerate(run.log.tenants):
        yield _group(calls, name or "-", calls.tenant == number)


def _group(calls: Judged, name: str, among: "np.ndarray[Any, np.dtype[np.bool_]]") -> Group:
    return Group(
        name=name,
        calls=int(among.sum()),
        success=share(calls.good[among]),
        served=float(calls.cost[among & calls.ok].sum()),
        ttft_p50=quantile(calls.ttft[among], 0.5),
        ttft_p99=quantile(calls.ttft[among], 0.99),
    )


def _reasons(attempts: Tries) -> dict[str, int]:
    failed = attempts.reason[~attempts.served]
    numbers, counts = np.unique(failed, return_counts=True)
    return {str(REASONS[n]): int(count) for n, count in zip(numbers, counts, strict=True)}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
