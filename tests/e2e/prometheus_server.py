"""A real Prometheus on loopback, with what `dashboards build` writes: scrapes, rules, alerts."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from tests.e2e.running import until

from surgetank.dashboards.build import build

Document = dict[str, Any]
Sample = tuple[dict[str, str], float]
Targets = Mapping[str, Mapping[str, str]]  # job -> instance -> URL of the process


class Prometheus:
    """Starts on entering, once every target has been scraped; ends on leaving.

    Scrapes and evaluates each second instead of each five. `adjust` may change each rule file's
    content before it is loaded, such as how long an alert waits. Without the program the test is
    skipped.
    """

    def __init__(
        self,
        folder: Path,
        targets: Targets,
        *,
        alertmanager: str = "",
        adjust: Callable[[Document], None] = lambda rules: None,
    ) -> None:
        self.folder = folder
        self._targets = targets
        self._alertmanager = alertmanager
        self._adjust = adjust
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._command = [
            _program(),
            f"--config.file={folder / 'prometheus' / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]

    def __enter__(self) -> Self:
        build(self.folder)
        self._configure()
        self._client = httpx.Client(base_url=self.url, timeout=60.0)
        self._errors = (self.folder / "prometheus.stderr").open("wb")
        self.process = subprocess.Popen(
            self._command, stdout=self._errors, stderr=self._errors, env=os.environ | {"TZ": "UTC"}
        )
        try:
            until(self._ready, "prometheus is ready")
            until(self._all_up, "every target was scraped")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop()

    def query(self, expr: str, at: float | None = None) -> list[Sample]:
        """The instant vector of an expression, now or at a Unix time; a scalar has no labels."""
        data = self._get("query", {"query": expr} | ({} if at is None else {"time": at}))
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Document]:
        """Series over time, as Prometheus answers: {"metric": labels, "values": [[t, text]]}."""
        asked = {"query": expr, "start": start, "end": end, "step": step}
        found: list[Document] = self._get("query_range", asked)["result"]
        return found

    def alerts(self) -> list[Document]:
        """Pending and firing alerts: {"labels", "annotations", "state", "activeAt", "value"}."""
        found: list[Document] = self._get("alerts", {})["alerts"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {each["labels"]["alertname"] for each in self.alerts() if each["state"] == "firing"}

    def _get(self, what: str, parameters: Mapping[str, Any]) -> Document:
        answer = self._client.get(f"/api/v1/{what}", params=parameters)
        assert answer.status_code == 200, f"{parameters}: {answer.text}"
        data: Document = answer.json()["data"]
        return data

    def _configure(self) -> None:
        """The built files, hurried, and the targets as a fleet's are given: in files."""
        for path in sorted((self.folder / "prometheus" / "rules").glob("*.yml")):
            rules = yaml.safe_load(path.read_text("utf-8"))
            for group in rules["groups"]:
                group.pop("interval", None)
            self._adjust(rules)
            path.write_text(yaml.safe_dump(rules, sort_keys=False), "utf-8")
        path = self.folder / "prometheus" / "prometheus.yml"
        settings = yaml.safe_load(path.read_text("utf-8"))
        settings["global"] = dict.fromkeys(settings["global"], "1s")
        for job in settings["scrape_configs"]:
            job.pop("static_configs", None)
            self._write_targets(job["job_name"])
        managers = [urlsplit(self._alertmanager).netloc] if self._alertmanager else []
        settings["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": managers}]}]
        path.write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")

    def _write_targets(self, job: str) -> None:
        fleet = [
            {"targets": [urlsplit(url).netloc], "labels": {"instance": instance}}
            for instance, url in self._targets.get(job, {}).items()
        ]
        path = self.folder / "prometheus" / "targets" / job / "fleet.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(fleet), "utf-8")

    def _ready(self) -> bool:
        assert self.process.poll() is None, self._said()
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False  # it does not listen yet

    def _all_up(self) -> bool:
        wanted = sum(len(instances) for instances in self._targets.values())
        return len(self.query("up == 1")) == wanted

    def _said(self) -> str:
        return (self.folder / "prometheus.stderr").read_text(errors="replace")

    def _stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30.0)
        except subprocess.TimeoutExpired:
            sys.stderr.write("prometheus did not end within 30 s\n")
            self.process.kill()
            self.process.wait(10.0)
        self._errors.close()
        self._client.close()


def _program() -> str:
    found = shutil.which("prometheus")
    if found is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
