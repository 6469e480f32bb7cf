"""Critical calls beside five and ten times as much batch work: they hardly notice it."""

from surgetank.control.lab.headline.experiment import Bar, Experiment, worst
from surgetank.control.lab.headline.ground import ENGINE, MIX, offered, scenario
from surgetank.control.lab.inputs import merged
from surgetank.control.lab.judge import judge, quantile
from surgetank.control.lab.world import play
from surgetank.telemetry.vocabulary import Priority

_CRITICAL = 0.3  # of capacity
_LOADS = (5.0, 10.0)  # of capacity, in the low class
_WARM, _END = 5.0, 240.0  # long enough for a p99 that more than twenty calls make
_ENGINE = ENGINE.model_copy(update={"by_priority": True})
_BARS = (
    Bar("critical_ttft_p99_of_unloaded", 1.25),
    Bar("critical_success", 0.999, floor=True),
    Bar("low_class_share", 0.05, floor=True),
)


def _measure(seed: int) -> dict[str, float]:
    high = MIX.model_copy(update={"priority": Priority.CRITICAL, "tenant": "high"})
    low = MIX.model_copy(update={"priority": Priority.BATCH, "tenant": "low"})
    critical = offered(_ENGINE, high, _CRITICAL, 0.0, _END, f"{seed}:high")
    alone = judge(play(scenario(seed, _ENGINE), critical))
    unloaded = quantile(alone.ttft, 0.99)
    cells = []
    for load in _LOADS:
        batch = offered(_ENGINE, low, load, 0.0, _END, f"{seed}:low:{load}")
        calls = judge(play(scenario(seed, _ENGINE), merged(critical, batch)))
        is_critical = calls.priority == Priority.CRITICAL
        served = calls.ok & calls.between(_WARM, _END)
        low_share = calls.cost[served & ~is_critical].sum() / calls.cost[served].sum()
        cells.append(
            {
                "critical_ttft_p99_of_unloaded": quantile(calls.ttft[is_critical], 0.99) / unloaded,
                "critical_success": calls.success(is_critical),
                "low_class_share": float(low_share),
            }
        )
    return worst(_BARS, cells)


PRIORITY = Experiment("priority", _BARS, _measure)
