"""The targets that boards and alerts hold the service to, and how fast a budget may burn."""

from dataclasses import dataclass

from surgetank.dashboards.rules import Severity

# The product's own default targets. A deployment that changes them changes these numbers too.
TTFT_SECONDS = 1.0
TPOT_SECONDS = 0.1

# The share of judged requests that must be good, by the `slo` label of slo_events_total.
OBJECTIVES = {"availability": 0.995, "ttft": 0.95, "tpot": 0.95}

# A window is not judged on fewer bad requests than this: one failure among the first three
# requests of the day is no burning budget.
FEWEST_BAD = 10

BUDGET_DAYS = 30


@dataclass(frozen=True, slots=True)
class Burn:
    """Alert when the budget burns `factor` times too fast over both windows.

    The long window says that it matters, the short one that it still goes on. At `factor` 1 the
    budget lasts exactly BUDGET_DAYS. Google, The Site Reliability Workbook, chapter 5.
    """

    factor: float
    long: str
    short: str
    severity: Severity

    def threshold(self, objective: float) -> float:
        """The bad share above which it burns so fast; past 1 it could never be reached."""
        return round(self.factor * (1 - objective), 6)


BURNS = (
    Burn(14.4, "1h", "5m", "critical"),
    Burn(6, "6h", "30m", "critical"),
    Burn(3, "1d", "2h", "warning"),
    Burn(1, "3d", "6h", "warning"),
)
WINDOWS = tuple(sorted({window for burn in BURNS for window in (burn.long, burn.short)}))
