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
    "traffic ends": [CALM, IDLE],
    "limits follow the load": [
        replace(CALM, minutes=2, limits={"queue_requests": (value / 4, value)})
        for value in (200.0, 180.0, 150.0, 110.0, 90.0, 100.0, 140.0, 200.0)
    ],
    "an operator tries values": [
        replace(CALM, minutes=1, overridden=1, limits={"queue_requests": (20, value)})
        for value in [100.0, 200.0] * 6
    ],
    "a remote engine": [replace(CALM, backend="vllm"), replace(CALM, backend="vllm", age=5)],
}


@pytest.mark.parametrize("situation", HARMLESS)
def test_nothing_fires(situation: str, rules: Path, tmp_path: Path) -> None:
    phases = HARMLESS[situation]
    end = at(phases)[-1]
    moments = range(1, round(end))
    check_rules(tmp_path, rules, World(phases), [firing(minute, ()) for minute in moments])
