"""The promises' report: what is left of each budget, how fast it burns, goodput, and its price."""

from collections import Counter

from pydantic import BaseModel, Field

from surgetank.control.diagnose.look import Counts
from surgetank.dashboards.objectives import OBJECTIVES
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Outcome

WINDOWS = {"5m": 300.0, "1h": 3600.0}  # of the burn rates


class SloOut(BaseModel):
    """One promise. Burn 1 spends the budget in exactly the time that it is for."""

    slo: str
    target: float | None = Field(description="seconds; null for availability")
    objective: float = Field(description="share of the judged requests that must be good")
    judged: int
    bad: int
    budget_left: float | None = Field(
        description="1 - bad / (judged * (1 - objective)), below 0 when overspent; null: no request"
    )
    burn: dict[str, float | None] = Field(description="by window; null: nothing was judged in it")


class GoodputOut(BaseModel):
    """What was served as promised, of late."""

    seconds: float = Field(description="that the rates are over")
    served: float = Field(description="requests per second that ended ok")
    as_promised: float = Field(description="of them, at least so many within both targets")
    output_tokens: float = Field(description="per second")


class CostOut(BaseModel):
    """Of 1,000 output tokens, at a price per hour; null: none were produced."""

    price_per_hour: float
    lately: float | None
    since_start: float | None


class SloReport(BaseModel):
    """All of it; counted since the sidecar's start."""

    since: float = Field(description="seconds since the start")
    slos: list[SloOut]
    goodput: GoodputOut
    cost: CostOut | None


def report(
    *,
    now: Counts,
    since: float,
    before: dict[str, tuple[float, Counts]],
    targets: SloTargets,
    price_per_hour: float | None,
) -> SloReport:
    """`before`: for each of WINDOWS, the counts at its begin and how many seconds ago that was."""
    seconds, earlier = before["5m"]
    lately, seconds = now.since(earlier), max(1e-3, seconds)
    return SloReport(
        since=since,
        slos=[_slo(slo, now, before, targets) for slo in OBJECTIVES],
        goodput=_goodput(lately, seconds),
        cost=None if price_per_hour is None else _cost(price_per_hour, lately, seconds, now, since),
    )


def _slo(
    slo: str, now: Counts, before: dict[str, tuple[float, Counts]], targets: SloTargets
) -> SloOut:
    allowed = 1.0 - OBJECTIVES[slo]
    share = bad_share(now.judged, slo)
    shares = {name: bad_share(now.since(then).judged, slo) for name, (_, then) in before.items()}
    return SloOut(
        slo=slo,
        target=None if slo == "availability" else targets.named(slo),
        objective=OBJECTIVES[slo],
        judged=now.judged[slo, "good"] + now.judged[slo, "bad"],
        bad=now.judged[slo, "bad"],
        budget_left=None if share is None else 1.0 - share / allowed,
        burn={name: None if bad is None else bad / allowed for name, bad in shares.items()},
    )


def bad_share(judged: Counter[tuple[str, str]], slo: str) -> float | None:
    """Of the judged requests, the bad ones' share; None when none was judged."""
    good, bad = judged[slo, "good"], judged[slo, "bad"]
    return bad / (good + bad) if good + bad else None


def _goodput(lately: Counts, seconds: float) -> GoodputOut:
    served = lately.outcomes[Outcome.OK]
    late = lately.judged["ttft", "bad"] + lately.judged["tpot", "bad"]
    return GoodputOut(
        seconds=seconds,
        served=served / seconds,
        as_promised=max(0, served - late) / seconds,
        output_tokens=lately.output_tokens / seconds,
    )


def _cost(price: float, lately: Counts, seconds: float, now: Counts, since: float) -> CostOut:
    def per_thousand(tokens: int, passed: float) -> float | None:
        return 1000.0 * price * passed / 3600.0 / tokens if tokens else None

    return CostOut(
        price_per_hour=price,
        lately=per_thousand(lately.output_tokens, seconds),
        since_start=per_thousand(now.output_tokens, since),
    )
