"""Runs Prometheus' and Alertmanager's own checkers, where they are installed."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.dashboards.world import INTERVAL, World

RULES = ("recordings.yml", "backends.yml", "alerts.yml")


def tool(name: str) -> str:
    """The program's path; without it the test is skipped, saying where it comes from."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(
            f"{name} is not installed: apt-get install prometheus prometheus-alertmanager"
            " (or take it from a release of Prometheus and put it on PATH)"
        )
    return found


def run(name: str, *arguments: str | Path) -> str:
    """What the program prints; the test fails when the program does."""
    command = [tool(name), *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def firing(minute: float, names: Sequence[str]) -> dict[str, Any]:
    """Exactly these alerts fire then, beside the one that always does."""
    return {
        "eval_time": f"{round(minute * 60)}s",
        "expr": 'group by (alertname) (ALERTS{alertstate="firing",alertname!="Watchdog"})',
        "exp_samples": [
            {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)
        ],
    }


def check_rules(
    folder: Path,
    rules: Path,
    series: World | list[dict[str, str]],
    expected: Sequence[Mapping[str, Any]],
    interval: int = INTERVAL,
) -> None:
    """Play the series against the built rules, and compare what comes out."""
    inputs = series.input_series() if isinstance(series, World) else series
    test = {"interval": f"{interval}s", "input_series": inputs, "promql_expr_test": list(expected)}
    case = {
        "rule_files": [str(rules / name) for name in RULES],
        "evaluation_interval": f"{interval}s",
        "tests": [test],
    }
    path = folder / "case.yml"
    path.write_text(yaml.safe_dump(case, sort_keys=False))
    run("promtool", "test", "rules", path)
