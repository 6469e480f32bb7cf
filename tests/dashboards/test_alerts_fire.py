"""Each alert fires in the fault that it is for, alone or with what follows from it."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.dashboards.promtool import check_rules, firing
from tests.dashboards.world import Phase, World, at

from surgetank.dashboards.alerts.slo import SLO
from surgetank.dashboards.alerts.table import ALERTS
from surgetank.dashboards.prometheus import ENGINE_JOB, SIDECAR_JOB
from surgetank.dashboards.recordings import SERVICE_LEVELS

CALM = Phase(minutes=10, rps=10, steps=20, slots={"filled": 0.5})
FULL = replace(CALM, slots={"filled": 1}, queue=8, contended=0.5, fill=1)


def flapping() -> list[Phase]:
    """A limit that doubles and halves every minute."""
    values = [100.0, 200.0] * 6
    return [replace(CALM, minutes=1, limits={"queue_requests": (20, value)}) for value in values]


# What happens, and which alerts fire at the end of it.
FAULTS: dict[str, tuple[list[Phase], set[str]]] = {
    "answers fail for a while": (
        [CALM, replace(CALM, bad={"availability": 0.5})],
        {"ErrorBudgetBurn"},
    ),
    "the first burst of errors ever": (
        [Phase(minutes=60), replace(CALM, minutes=3, bad={"availability": 0.5})],
        {"ErrorBudgetBurn"},
    ),
    "clients retry three times": (
        [CALM, replace(CALM, minutes=4, retries=30)],
        {"RetryStorm"},
    ),
    "nothing but retries arrives": (
        [CALM, replace(CALM, minutes=4, rps=0, retries=30)],
        {"RetryStorm"},
    ),
    "the queue moves too slowly": (
        [CALM, replace(FULL, minutes=4, queue=200, oldest={"default": 3})],
        {"QueueWaitHigh"},
    ),
    "default requests are refused for half an hour": (
        [CALM, replace(FULL, minutes=30, shed={"default": 0.6})],
        {"ShedHigh"},
    ),
    "critical requests wait behind default ones": (
        [
            CALM,
            replace(
                CALM,
                classes={"critical": 0.5, "default": 0.5},
                waits={"critical": 0.8, "default": 0.05},
            ),
        ],
        {"PriorityInversion"},
    ),
    "a limit stands at its floor and is used up": (
        [CALM, replace(CALM, minutes=4, limits={"queue_requests": (1, 1)})],
        {"LimitAtFloor"},
    ),
    "a limit swings": ([CALM, *flapping()], {"LimitFlapping"}),
    "our limit keeps sequences out": (
        [
            CALM,
            replace(CALM, queue=8, held="limit", slots={"filled": 0.25}),
        ],
        {"LimitBinding"},
    ),
    "the engine is told to run fewer": (
        [
            CALM,
            replace(CALM, slots={"filled": 0.25, "blocked_limit": 0.75}, contended=1, fill=0.25),
        ],
        {"LimitBinding"},
    ),
    "the KV pool thrashes": (
        [CALM, replace(FULL, minutes=5, slots={"filled": 0.9, "blocked_kv": 0.1}, wasted=0.3)],
        {"PreemptionThrash"},
    ),
    "the engine lacks KV blocks": (
        [CALM, replace(CALM, slots={"filled": 0.5, "blocked_kv": 0.5}, contended=1, fill=0.5)],
        {"MemoryLimited"},
    ),
    "the gate's KV reserve is used up": (
        [CALM, replace(CALM, queue=8, held="memory", slots={"filled": 0.5})],
        {"MemoryLimited"},
    ),
    "memory runs out": (
        [CALM, replace(CALM, minutes=1, faults={"memory_oom_total": 0.1})],
        {"OutOfMemory"},
    ),
    "the GPU reports a fault": (
        [CALM, replace(CALM, minutes=1, faults={"compute_xid_total": 0.05})],
        {"GpuFault"},
    ),
    "the GPU's driver is gone": ([CALM, replace(CALM, minutes=4, gpu_up=0)], {"GpuFault"}),
    "the GPU is too hot": (
        [CALM, replace(CALM, minutes=12, gpu={"hw_slowdown": 0.4, "hw_thermal": 0.4})],
        {"GpuThrottle"},
    ),
    "a step takes too many prompts": (
        [replace(CALM, minutes=60), replace(CALM, minutes=4, steps=2, step_seconds=1.2)],
        {"StepTimeSpike"},
    ),
    "the engine's loop hangs": (
        [CALM, replace(CALM, minutes=1, steps=0, age=30)],
        {"EngineStalled"},
    ),
    "the engine process is frozen": (
        [CALM, replace(CALM, minutes=3, steps=0, age=60, answers={ENGINE_JOB: 0})],
        {"EngineStalled", "MetricsAbsent"},
    ),
    "the engine is gone": (
        [CALM, replace(CALM, minutes=1, steps=0, backend_up=0)],
        {"BackendDown"},
    ),
    "one of several engines is gone": (
        [
            replace(CALM, backend="a", others={"b": "up"}),
            replace(CALM, minutes=1, backend="a", others={"b": "down"}),
        ],
        {"BackendLeftOut"},
    ),
    "one of several engines fails again and again": (
        [
            replace(CALM, backend="a", others={"b": "up"}),
            replace(CALM, minutes=2, backend="a", others={"b": "ejected"}),
        ],
        {"BackendLeftOut"},
    ),
    "an engine dies again and again, between two looks at it": (
        [CALM, replace(CALM, minutes=10, faults={"backend_restarts_total": 1 / 180})],
        {"BackendRestarting"},
    ),
    "all of several engines are gone": (
        [
            replace(CALM, backend="a", others={"b": "up"}),
            replace(CALM, minutes=1, steps=0, backend="a", backend_up=0, others={"b": "down"}),
        ],
        {"BackendDown"},
    ),
    "a remote engine tells nothing new": (
        [replace(CALM, backend="vllm"), replace(CALM, minutes=2, backend="vllm", age=45)],
        {"BackendStale"},
    ),
    "the device is full and promises break": (
        [CALM, replace(FULL, minutes=12, bad={"ttft": 0.2})],
        {"ComputeLimited", "ErrorBudgetBurn"},
    ),
    "empty slots, for no reason": (
        [CALM, replace(CALM, slots={"filled": 0.4, "blocked_other": 0.6}, contended=1, fill=0.4)],
        {"SchedulingLimited"},
    ),
    "the gate does not reach an engine with room": (
        [CALM, replace(CALM, queue=8, held="dispatch", slots={"filled": 0.4})],
        {"SchedulingLimited"},
    ),
    "prompts wait for the tokens of small steps": (
        [CALM, replace(CALM, queue=8, held="token_budget", slots={"filled": 0.1})],
        {"SchedulingLimited"},
    ),
    "a token budget too small for its steps": (
        [
            CALM,
            replace(CALM, slots={"filled": 0.4, "blocked_token_budget": 0.6}, step_seconds=0.01),
        ],
        {"SchedulingLimited"},
    ),
    "the sidecar does not answer": (
        [CALM, replace(CALM, minutes=3, answers={SIDECAR_JOB: 0})],
        {"MetricsAbsent"},
    ),
    "a gauge cannot be read": (
        [CALM, replace(CALM, minutes=5, faults={"telemetry_source_errors_total": 0.2})],
        {"MetricsAbsent"},
    ),
    "clients send junk for a label": (
        [CALM, replace(CALM, minutes=5, faults={"telemetry_label_overflow_total": 20})],
        {"LabelOverflow"},
    ),
    "others use the engine": (
        [CALM, replace(CALM, minutes=5, gauges={"ledger_drift": -6})],
        {"LedgerDrift"},
    ),
    "one sequence is lost for good": (
        [CALM, replace(CALM, minutes=3, gauges={"ledger_drift": 1})],
        {"LedgerDrift"},
    ),
    "only critical requests are served": (
        [CALM, replace(CALM, minutes=4, gauges={"brownout_level": 4})],
        {"BrownOut"},
    ),
    "the step model is off": (
        [CALM, replace(CALM, gauges={"step_model_error_ratio": 0.4})],
        {"StepModelWrong"},
    ),
    "a policy raises": (
        [CALM, replace(CALM, minutes=3, faults={"control_policy_errors_total": 4})],
        {"PolicyFailing"},
    ),
    "a canary does worse and is rolled back": (
        [CALM, replace(CALM, minutes=2, faults={"policy_rollbacks_total": 0.05})],
        {"PolicyRolledBack"},
    ),
    "the Redis that quotas are shared by is gone": (
        [
            replace(CALM, shared="shared"),
            replace(CALM, minutes=1, shared="holding"),
            replace(CALM, minutes=2, shared="alone"),
        ],
        {"SharedStateLost"},
    ),
    "the journal's disk is full": (
        [CALM, replace(CALM, minutes=2, faults={"journal_write_failures_total": 0.1})],
        {"JournalFailing"},
    ),
    "the collector of traces is gone": (
        [CALM, replace(CALM, minutes=12, faults={"trace_spans_dropped_total": 2})],
        {"TraceSpansDropped"},
    ),
    "waits go beyond the last bucket": (
        [CALM, replace(CALM, minutes=22, waits={"default": 400})],
        {"HistogramOverflow"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_raises_its_alert_and_no_other(fault: str, rules: Path, tmp_path: Path) -> None:
    phases, names = FAULTS[fault]
    before, end = phases[0].minutes - 0.5, at(phases)[-1] - 0.25
    expected = [firing(before, ()), firing(end, sorted(names))]
    check_rules(tmp_path, rules, World(phases), expected)


def test_a_spike_fires_for_as_long_as_it_lasts(rules: Path, tmp_path: Path) -> None:
    """Its own steps are soon more than a hundredth of the last hour's: they are not the usual."""
    slow = replace(CALM, minutes=12, steps=5, step_seconds=0.2)
    expected = [firing(minute, ["StepTimeSpike"]) for minute in range(62, 72)]
    check_rules(tmp_path, rules, World([replace(CALM, minutes=60), slow]), expected)


def test_single_looks_at_a_busy_engine_are_no_drift(rules: Path, tmp_path: Path) -> None:
    looks = [
        replace(CALM, minutes=minutes, gauges={"ledger_drift": drift})
        for _ in range(6)
        for minutes, drift in ((1.0, 0), (0.5, 40), (1.0, 0), (0.5, -40))
    ]
    expected = [firing(minute, ()) for minute in range(10, 28)]
    check_rules(tmp_path, rules, World([CALM, *looks]), expected)


def test_no_targets_at_all(rules: Path, tmp_path: Path) -> None:
    check_rules(tmp_path, rules, [], [firing(4, ()), firing(6, ["MetricsAbsent"])])


def test_every_alert_has_its_fault() -> None:
    tried = {name for _, names in FAULTS.values() for name in names}
    assert {alert.name for alert in ALERTS} - tried == {"Watchdog"}


# After days without a fault: bad share of ttft, hours of it, and the windows that must burn.
BURNS = [
    (0.8, 1, {"1h"}),
    (0.4, 6, {"6h"}),
    (0.2, 24, {"1d", "3d"}),
    (0.06, 72, {"3d"}),
    (0.04, 72, set[str]()),
]


@pytest.mark.parametrize(("share", "hours", "windows"), BURNS)
def test_budgets_burn_over_their_windows(
    share: float, hours: int, windows: set[str], tmp_path: Path
) -> None:
    every, rps, calm = 300, 10, 72
    # promtool takes groups in any order: what one records may reach the others an interval late.
    late = 2
    before, during = calm * 3600 // every, hours * 3600 // every + late
    good, bad = rps * every * (1 - share), rps * every * share
    values = {
        "good": f"0+{rps * every}x{before} {before * rps * every + good}+{good}x{during - 1}",
        "bad": f"0x{before} {bad}+{bad}x{during - 1}",
    }
    series = [
        {"series": f'surgetank_slo_events_total{{slo="ttft",result="{result}"}}', "values": text}
        for result, text in values.items()
    ]
    burning = {
        "eval_time": f"{(calm + hours) * 3600 + late * every}s",
        "expr": 'group by (window) (ALERTS{alertstate="firing",alertname="ErrorBudgetBurn"})',
        "exp_samples": [
            {"labels": f'{{window="{window}"}}', "value": 1} for window in sorted(windows)
        ],
    }
    check_rules(tmp_path, _only_budgets(tmp_path), series, [burning], interval=every)


def _only_budgets(folder: Path) -> Path:
    """The rules of the error budgets, evaluated as rarely as the series have samples."""
    for name, groups in (("recordings", [SERVICE_LEVELS]), ("alerts", [SLO]), ("backends", [])):
        written = [group.as_dict() for group in groups]
        for group in written:
            del group["interval"]
        (folder / f"{name}.yml").write_text(yaml.safe_dump({"groups": written}))
    return folder
