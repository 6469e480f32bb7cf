"""One product under watch: the real processes, a real Prometheus with hurried rules, commands."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.admission.leases.redis_rig import RedisServer
from tests.e2e.faults.faster import hurry
from tests.e2e.prometheus_server import Prometheus, Sample
from tests.e2e.running import PATIENCE, Running, until

from surgetank.control.cli.runbook import filled, sections
from surgetank.dashboards.alerts.table import ALERTS
from surgetank.dashboards.prometheus import ENGINE_JOB, SIDECAR_JOB

TIMES = 30  # two minutes in four seconds
INSTANCE = "surgetank-0"
ALWAYS = "Watchdog"
# Machines that run tests share their cores, which is what this alert is there to say.
NOISE = "StepModelWrong"
OVER = "is over"  # ends the reason of what a runbook takes back afterwards


@dataclass
class Plant:
    """What a test does to the product, and what it sees."""

    product: Running
    prometheus: Prometheus
    redis: RedisServer

    @property
    def url(self) -> str:
        """The admin API's base URL."""
        return self.product.listeners["admin"]

    def firing(self) -> set[str]:
        """Alerts that fire, but for the one that always does and the one of shared cores."""
        return self.prometheus.firing() - {ALWAYS, NOISE}

    def until_firing(self, wanted: str, allowed: frozenset[str] = frozenset()) -> set[str]:
        """Wait for an alert; returns all that fired until then, and none but `allowed` did."""
        seen: set[str] = set()

        def fires() -> bool:
            seen.update(self.firing())
            assert seen <= {wanted} | allowed, f"{sorted(seen)} while waiting for {wanted}"
            return wanted in seen

        until(fires, f"{wanted} fires")
        return seen

    def until_calm(self) -> None:
        """Wait until no alert fires."""
        until(lambda: not self.firing(), f"calm; {self.firing()} fire")

    def pending(self, alert: str, **labels: str) -> list[Sample]:
        """What the alert's expression finds now, as it is evaluated."""
        found: list[Sample] = []
        for rule in ALERTS:
            if rule.name == alert and labels.items() <= rule.labels.items():
                document = {"groups": [{"rules": [rule.as_dict()]}]}
                hurry(document, TIMES)
                found += self.prometheus.query(document["groups"][0]["rules"][0]["expr"])
        return found

    def verdict(self) -> dict[str, Any]:
        """`surgetank diagnose --json`."""
        answer: dict[str, Any] = json.loads(self.run("surgetank diagnose --json"))
        return answer

    def until_verdict(self, word: str) -> dict[str, Any]:
        """Wait for the verdict; returns the diagnosis."""
        until(lambda: self.verdict()["verdict"] == word, f"verdict {word}, not {self.verdict()}")
        return self.verdict()

    def run(self, command: str) -> str:
        """A command as it stands in a runbook, in a shell's process; returns what it printed."""
        _, *words = shlex.split(command)
        done = subprocess.run(
            [sys.executable, "-m", "surgetank", *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "SURGETANK_URL": self.url},
            cwd=self.product.folder,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def signal_engine(self, number: signal.Signals) -> None:
        """Send a signal to the engine's process."""
        os.kill(self.product.status()["engine"]["pid"], number)


def commands(alert: str, section: str, limit: str | None = None) -> list[str]:
    """A runbook's commands, in their order, for the alert's label `limit`."""
    text = (files("surgetank.dashboards") / "runbooks" / f"{alert}.md").read_text("utf-8")
    found: list[str] = sections(filled(text, alert, None, limit))[section]["commands"]
    return found


def watched(product: Running, folder: Path) -> Prometheus:
    """A Prometheus over both of the product's processes."""
    targets = {
        SIDECAR_JOB: {INSTANCE: product.http},
        ENGINE_JOB: {INSTANCE: f"http://127.0.0.1:{product.metrics_port}"},
    }
    return Prometheus(folder, targets, adjust=partial(hurry, times=TIMES))


def cure(
    plant: Plant,
    alert: str,
    limit: str | None = None,
    human: Callable[[str], None] = lambda before: None,
) -> None:
    """Follow the runbook until the alert's expression finds nothing, then take back what it set.

    `human` does what the runbook asks of people, if anything, before the command it is told.
    """
    for command in commands(alert, "Diagnosis", limit):
        assert plant.run(command).strip(), command
    steps = commands(alert, "Mitigation", limit)
    for command in steps:
        if OVER not in command:
            human(command)
            assert plant.run(command).strip(), command
    until(lambda: not plant.pending(alert), f"the expression of {alert} finds nothing")
    until(lambda: alert not in plant.firing(), f"{alert} has ended")
    for command in steps:
        if OVER in command:
            plant.run(command)
