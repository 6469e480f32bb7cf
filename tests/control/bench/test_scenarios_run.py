"""The whole bench once, on the real product and very small; and what its command refuses."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from surgetank.control.bench.scenarios.cores import part
from surgetank.control.bench.scenarios.plan import QUICK
from surgetank.control.bench.scenarios.run import Wishes, measure, reported
from surgetank.control.cli import main
from surgetank.telemetry.clock import SystemClock

TINY = replace(
    QUICK,
    probe=10.0,
    warm=1.0,
    a_loads=(0.5, 2.0),
    a_seconds=5.0,
    b_before=7.0,
    b_stall=3.0,
    b_after=7.0,
    d_loads=(2.0,),
    d_seconds=5.0,
)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_all_scenarios_are_measured_and_predicted() -> None:
    said: list[str] = []
    wishes = Wishes(quick=True, settings=("slo.ttft=60", "slo.tpot=10"))
    calibration, seen = asyncio.run(measure(wishes, TINY, said.append))
    found = reported(wishes, calibration, seen, SystemClock(), said.append)
    assert calibration.ground.capacity > 0
    assert [each["cell"] for each in found["cells"]] == [
        "a load 0.5x",
        "a load 2x",
        "b load 0.9, hints obeyed",
        "b load 0.9, hints ignored",
        "d high alone",
        "d low 2x",
    ]
    assert len(found["comparisons"]) == 3 * 6
    assert {each["name"] for each in found["experiments"]} == {"a", "b", "d"}
    for each in found["cells"]:
        assert each["measured"]["calls"] == each["predicted"]["calls"]
    first = found["cells"][0]
    assert first["measured"]["success"] == first["predicted"]["success"] == 1.0
    assert first["measured"]["ttft_p50"] > 0 < first["predicted"]["ttft_p50"]


def test_an_unknown_scenario_is_a_usage_error(tmp_path: Path) -> None:
    arguments = ["bench", "scenarios", "--only", "a,z", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "allowed: some of a,b,d" in done.output


def test_a_wrong_setting_is_one_sentence(tmp_path: Path) -> None:
    arguments = ["bench", "scenarios", "--set", "slo.ttft=-1", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "slo.ttft" in done.output


def test_a_thread_that_ends_meanwhile_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []

    def pin(thread: int, to: Sequence[int]) -> None:
        if not pinned:
            pinned.append(0)
            raise ProcessLookupError(thread)
        pinned.append(thread)

    monkeypatch.setattr(os, "sched_setaffinity", pin)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as engine:
        assert part(engine.pid, [0, 1]).startswith("the engine has 1 of 2 cores")
        engine.communicate(b"\n")
    assert os.getpid() in pinned


def test_one_core_is_shared() -> None:
    assert part(1, [0]) == "engine and clients share the cores"
