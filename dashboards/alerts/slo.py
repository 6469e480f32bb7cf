"""The error budgets: an alert when one burns too fast, over two windows at once."""

from surgetank.dashboards.objectives import BURNS, FEWEST_BAD, OBJECTIVES, Burn
from surgetank.dashboards.recordings import bad_share
from surgetank.dashboards.rules import Alert, Group

_WHAT = {
    "availability": "requests that failed through no fault of their client",
    "ttft": "admitted requests whose first token came late",
    "tpot": "admitted requests whose tokens came slowly",
}


def _burn(burn: Burn, slo: str, objective: float) -> Alert:
    threshold = burn.threshold(objective)
    conditions = (
        f"{bad_share(burn.long, slo)} > {threshold:g}",
        f"{bad_share(burn.short, slo)} > {threshold:g}",
        f'slo:bad_events:increase{burn.long}{{slo="{slo}"}} >= {FEWEST_BAD}',
    )
    return Alert(
        name="ErrorBudgetBurn",
        expr="\nand ".join(f"({condition})" for condition in conditions),
        wait="1m",
        severity=burn.severity,
        labels={"slo": slo, "window": burn.long},
        summary=f"The {slo} budget burns {burn.factor:g} times too fast ({burn.long}).",
        description=(
            "{{ $value | humanizePercentage }} of the judged requests were bad in the last "
            f"{burn.long}: {_WHAT[slo]}. At most {1 - objective:.1%} may be. Refusals for load "
            "are not among them. Start with the verdict on the Overview board."
        ),
    )


SLO = Group(
    "surgetank_error_budgets",
    tuple(_burn(burn, slo, objective) for slo, objective in OBJECTIVES.items() for burn in BURNS),
    "30s",
)
