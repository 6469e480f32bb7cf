"""No alert fires when nothing is wrong: idle, first traffic, a ramp, a healthy overload."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.dashboards.promtool import check_rules, firing
from tests.dashboards.world import Phase, World, at, ramp

IDLE = Phase(minutes=20)
CALM = Phase(minutes=10, rps=10, steps=20, slots={"filled": 0.5}, bad={"ttft": 0.01})
NEAR_FULL = Phase(
    minutes=10,
    rps=40,
    steps=12,
    step_seconds=0.08,
    slots={"filled": 0.95},
    contended=0.2,
    fill=1,
    bad={"ttft": 0.02, "tpot": 0.02},
)
# Three times what the device can do: the gate turns the rest away, the admitted get their due.
OVERLOAD = Phase(
    minutes=12,
    rps=120,
    retries=18,
    shed={"default": 0.65},
    bad={"ttft": 0.02, "tpot": 0.03},
    queue=8,
    oldest={"default": 0.5},
    waits={"default": 0.4},
    steps=12,
    step_seconds=0.09,
    slots={"filled": 1},
    contended=0.3,
    fill=1,
    limits={"in_flight_seqs": (32, 32), "queue_requests": (8, 12)},
)
# For long, the lowest class is turned away so that the others are served.
LOW_CLASS_SHED = replace(
    OVERLOAD,
    minutes=40,
    retries=4,
    rps=60,
    classes={"critical": 0.1, "default": 0.4, "batch": 0.5},
    shed={"batch": 0.9, "default": 0.05},
    waits={"critical": 0.05, "default": 0.3, "batch": 2.0},
    oldest={"batch": 30, "default": 0.5},
)

HARMLESS: dict[str, list[Phase]] = {
    "idle": [IDLE],
    "first traffic": [
        IDLE,
        Phase(minutes=2, rps=0.05, steps=1, step_seconds=2, slots={"filled": 0.1}, age=2),
        Phase(
            minutes=2,
            rps=0.1,
            retries=0.07,
            steps=2,
            slots={"filled": 0.1},
            bad={"ttft": 0.5, "availability": 0.2},
        ),
        CALM,
    ],
    "a ramp": [IDLE, *ramp(30, CALM, NEAR_FULL, 10), NEAR_FULL],
    "a steep ramp": [CALM, *ramp(4, CALM, NEAR_FULL, 4), NEAR_FULL],
    "a healthy overload": [CALM, OVERLOAD, CALM],
    "a lower class gives way": [CALM, LOW_CLASS_SHED],
    "the pace of tokens bounds the batch": [
        CALM,
        replace(OVERLOAD, slots={"filled": 0.5}, contended=0, limits={}),
    ],
    "the ladder goes up and down": [
        replace(CALM, minutes=1, gauges={"brownout_level": level}) for level in [1, 2, 3, 2] * 4
    ],
    "the model is not fitted yet": [
        replace(CALM, gauges={"step_model_fitted": 0, "step_model_error_ratio": 1}),
    ],
    "the model has seen too few steps to be judged": [
        IDLE,
        replace(CALM, minutes=1, steps=3, gauges={"step_model_error_ratio": 0.4}),
        replace(IDLE, minutes=30, gauges={"step_model_error_ratio": 0.4}),
    ],
    "traffic ends": [CALM, IDLE],
    "limits follow the load": [
        replace(CALM, minutes=2, limits={"queue_requests": (value / 4, value)})
        for value in (200.0, 180.0, 150.0, 110.0, 90.0, 100.0, 140.0, 200.0)
    ],
    "an operator tries values": [
        replace(CALM, minutes=1, overridden=1, limits={"queue_requests": (20, value)})
        for value in [100.0, 200.0] * 6
    ],
    "a sidecar joins others": [
        replace(CALM, minutes=0.5, shared="alone"),
        replace(CALM, shared="shared"),
        OVERLOAD,
    ],
    "Redis is restarted": [
        replace(CALM, shared="shared"),
        replace(CALM, minutes=0.5, shared="holding"),
        replace(CALM, shared="shared"),
    ],
    "a healthy overload of sidecars that share": [
        replace(IDLE, shared="shared"),
        *(replace(each, shared="shared") for each in ramp(8, CALM, NEAR_FULL, 4)),
        replace(OVERLOAD, shared="shared"),
    ],
    "a collector of traces is restarted": [
        CALM,
        replace(CALM, minutes=3, faults={"trace_spans_dropped_total": 2}),
        replace(CALM, minutes=12),
    ],
    "a collector of traces is gone, and hardly anybody asks": [
        replace(CALM, minutes=20, rps=0.02, faults={"trace_spans_dropped_total": 0.02}),
    ],
    "one of several engines is drained, and starts anew": [
        replace(CALM, backend="a", others={"b": state}) for state in ("draining", "slow_start")
    ],
    "a remote engine": [replace(CALM, backend="vllm"), replace(CALM, backend="vllm", age=5)],
}


@pytest.mark.parametrize("situation", HARMLESS)
def test_nothing_fires(situation: str, rules: Path, tmp_path: Path) -> None:
    phases = HARMLESS[situation]
    end = at(phases)[-1]
    moments = range(1, round(end))
    check_rules(tmp_path, rules, World(phases), [firing(minute, ()) for minute in moments])


def test_a_limit_with_but_one_value_is_at_no_floor(rules: Path, tmp_path: Path) -> None:
    """An engine with one slot, always busy."""
    series = World([replace(CALM, limits={"in_flight_seqs": (1, 1)})]).input_series()
    (highest,) = (each for each in series if 'limit="in_flight_seqs",bound="max"' in each["series"])
    highest["values"] = "1+0x19"
    check_rules(tmp_path, rules, series, [firing(minute, ()) for minute in range(1, 10)])
