"""The promises' report: budget, burn, goodput and cost, by hand-made counts."""

from collections import Counter

import pytest

from surgetank.control.diagnose.look import Counts
from surgetank.control.slo import SloReport, report
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Outcome


def counts(ok: int = 0, late: int = 0, lost: int = 0, tokens: int = 0) -> Counts:
    judged = Counter(
        {
            ("availability", "good"): ok,
            ("availability", "bad"): lost,
            ("ttft", "good"): ok - late,
            ("ttft", "bad"): late,
        }
    )
    outcomes = Counter({Outcome.OK: ok, Outcome.INTERNAL: lost})
    return Counts(outcomes=outcomes, judged=judged, output_tokens=tokens)


def made(now: Counts, earlier: Counts, price: float | None = None) -> SloReport:
    before = {"5m": (300.0, earlier), "1h": (1800.0, Counts())}
    targets = SloTargets(ttft=0.8)
    return report(now=now, since=1800.0, before=before, targets=targets, price_per_hour=price)


def test_a_budget_is_the_share_that_may_be_bad_and_burn_its_multiple() -> None:
    found = {each.slo: each for each in made(counts(1000, 20), counts(900, 10)).slos}
    ttft = found["ttft"]
    assert (ttft.target, ttft.objective, ttft.judged, ttft.bad) == (0.8, 0.95, 1000, 20)
    assert ttft.budget_left == pytest.approx(1 - 0.02 / 0.05)
    assert ttft.burn["5m"] == pytest.approx(0.10 / 0.05)
    assert ttft.burn["1h"] == pytest.approx(0.02 / 0.05)
    assert found["availability"].target is None


def test_an_overspent_budget_is_below_zero() -> None:
    found = {each.slo: each for each in made(counts(100, 0, lost=100), Counts()).slos}
    assert found["availability"].budget_left == pytest.approx(1 - 0.5 / 0.005)


def test_what_was_not_judged_is_not_known() -> None:
    found = {each.slo: each for each in made(counts(10), counts(10)).slos}
    assert found["tpot"].budget_left is None
    assert found["tpot"].burn == {"5m": None, "1h": None}
    assert found["ttft"].burn["5m"] is None, "nothing came in five minutes"


def test_goodput_is_what_was_in_time() -> None:
    goodput = made(counts(400, 110, tokens=9000), counts(100, 50)).goodput
    assert (goodput.served, goodput.as_promised) == (1.0, 0.8)
    assert goodput.output_tokens == 30.0


def test_cost_of_a_thousand_tokens_is_the_price_of_the_time_that_they_took() -> None:
    cost = made(counts(tokens=90_000), counts(tokens=60_000), price=3.6).cost
    assert cost is not None
    assert cost.lately == pytest.approx(0.01)  # 100 tokens a second
    assert cost.since_start == pytest.approx(0.02)
    idle = made(counts(tokens=5), counts(tokens=5), price=3.6).cost
    assert idle is not None
    assert idle.lately is None
