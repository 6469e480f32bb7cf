"""The engine's /metrics over a real listener: metrics, and nothing else."""

from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from surgetank.engine.scrape import ScrapeError, ScrapeServer
from surgetank.telemetry.clock import SystemClock
from surgetank.telemetry.exporter import Exporter
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import Registry


@pytest.fixture
def exporter() -> Exporter:
    return Exporter(Registry(Process.ENGINE), SystemClock())


@pytest.fixture
def server(exporter: Exporter) -> Iterator[ScrapeServer]:
    with ScrapeServer(exporter, "127.0.0.1", 0) as server:
        yield server


def test_it_serves_metrics_and_nothing_else(server: ScrapeServer) -> None:
    answer = httpx.get(f"{server.url}?x=1", trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert "surgetank_batch_steps" in names
    accept = {"Accept": "application/openmetrics-text"}
    assert httpx.get(server.url, headers=accept, trust_env=False).text.endswith("# EOF\n")
    assert httpx.get(server.url.replace("metrics", "admin"), trust_env=False).status_code == 404
    assert httpx.post(server.url, trust_env=False).status_code == 501


def test_an_address_that_cannot_be_had_is_named(server: ScrapeServer, exporter: Exporter) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    with pytest.raises(ScrapeError, match=rf"metrics on 127\.0\.0\.1:{port}: Address already"):
        ScrapeServer(exporter, "127.0.0.1", port)
    with pytest.raises(ScrapeError, match=r"127\.0\.0\.1:99999"):
        ScrapeServer(exporter, "127.0.0.1", 99999)
