"""What the product says, read: steps, drift, retries, calm; and the settings that it is given."""

import math
from typing import Any

import pytest

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.scenarios.calibrate import decode_rate
from surgetank.control.bench.scenarios.product import (
    config_of,
    drift,
    is_calm,
    moving,
    retries_in,
    rows_of,
    settings,
)
from surgetank.control.lab.steptime import StepModel
from surgetank.control.sources import ConfigError

MODEL = StepModel(t0=0.02, a=0.001, b=0.002, c=0.0)


def step(number: int, at: float, prefill: int, decode: int, idle: float = 0.0) -> dict[str, Any]:
    return {
        "step": number,
        "at": at,
        "prefill_tokens": prefill,
        "decode_tokens": decode,
        "context_tokens": 100,
        "stages": {"forward": 0.01, "idle": idle},
    }


def test_a_step_takes_the_time_since_the_one_before_less_its_idling() -> None:
    steps = [
        step(7, 10.0, 5, 0),
        step(8, 10.1, 0, 3),
        step(9, 11.2, 10, 3, idle=1.0),
        step(10, 11.3, 0, 0),  # no work
        step(12, 11.5, 0, 3),  # the one before is not there
    ]
    rows = rows_of(steps)
    assert [row[:3] for row in rows] == [(0.0, 3.0, 100.0), (10.0, 3.0, 100.0)]
    assert [row[3] for row in rows] == [pytest.approx(0.1), pytest.approx(0.1)]


def test_drift_is_against_the_model_and_without_a_stall() -> None:
    rows = [(0.0, 5.0, 0.0, 0.06)] * 10 + [(0.0, 5.0, 0.0, 10.0)]
    assert len(moving(rows)) == 10
    assert drift(rows, MODEL) == pytest.approx(2.0)
    assert math.isnan(drift([], MODEL))


def test_the_decode_rate_is_over_the_time_of_the_steps() -> None:
    assert decode_rate([(0.0, 5.0, 0.0, 0.05), (9.0, 7.0, 0.0, 0.07)]) == pytest.approx(100.0)
    with pytest.raises(BenchError, match="decoded nothing"):
        decode_rate([(9.0, 0.0, 0.0, 0.07)])


def test_retries_are_those_of_grpc_clients() -> None:
    name = "surgetank_retry_arrivals_total"
    scrape = (
        f"# TYPE {name} counter\n"
        f'{name}{{attempt="0",detected_by="none"}} 50\n'
        f'{name}{{attempt="1",detected_by="grpc-previous-rpc-attempts"}} 4\n'
        f'{name}{{attempt="3plus",detected_by="grpc-previous-rpc-attempts"}} 2\n'
        f'{name}{{attempt="1",detected_by="x-stainless-retry-count"}} 9\n'
    )
    assert retries_in(scrape) == 6.0
    with pytest.raises(BenchError, match="surgetank_retry_arrivals_total"):
        retries_in("")


def test_calm_is_nothing_in_flight_and_nobody_held_back() -> None:
    def status(in_flight: int, level: float, share: float) -> dict[str, Any]:
        limits = [
            {"name": "brownout_level", "value": level},
            {"name": "admission_share", "value": share},
        ]
        return {"requests": {"in_flight": in_flight}, "limits": limits}

    assert is_calm(status(0, 0.0, 1.0))
    assert not is_calm(status(1, 0.0, 1.0))
    assert not is_calm(status(0, 1.0, 1.0))
    assert not is_calm(status(0, 0.0, 0.5))


def test_the_users_settings_come_last() -> None:
    config = config_of(settings(["slo.ttft=3"]))
    assert config.slo.ttft == 3.0
    assert config.engine.policy == "priority"
    assert config.engine.tpot_target == config.slo.tpot
    with pytest.raises(ConfigError, match="nothing"):
        config_of(settings(["slo.nothing=3"]))
