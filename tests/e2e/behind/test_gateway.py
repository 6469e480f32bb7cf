"""What a gateway schedules by, out of a running sidecar."""

from pathlib import Path

import httpx
import pytest
from tests.control.sidecar_process import Sidecar, until
from tests.e2e.behind.proxies import ASK, proxied
from tests.e2e.behind.stub_engine import stub_engine
from tests.e2e.behind.test_envoy import command

pytestmark = pytest.mark.e2e
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_three_metrics_and_the_load_header(tmp_path: Path) -> None:
    settings = ("http.gateway_metrics=true", "http.load_header=true")
    with stub_engine() as engine:
        sidecar = Sidecar(tmp_path, f"backends.0.url={engine.url}", *settings)
        try:
            until(lambda: sidecar.look("/status")["state"] == "ready", "the engine is found")
            url = sidecar.listeners["http"]
            answer = httpx.post(f"{url}/v1/chat/completions", json=ASK)
            assert answer.headers["endpoint-load-metrics"] == (
                "TEXT named_metrics.num_requests_waiting=0,named_metrics.num_requests_running=1"
            )
            for accept in ("text/plain", OPENMETRICS):
                page = httpx.get(f"{url}/metrics", headers={"accept": accept}).text
                assert 'vllm:num_requests_waiting{model_name="m"} 0\n' in page
                assert 'vllm:num_requests_running{model_name="m"} 0\n' in page
                assert page.endswith("# EOF\n") == (accept == OPENMETRICS)
        finally:
            sidecar.kill()


def test_answers_that_envoy_carries_tell_the_load_too(tmp_path: Path) -> None:
    with (
        stub_engine() as engine,
        proxied(
            engine, tmp_path, "envoy/ext_proc.yaml", command, "envoy.load_header=true"
        ) as proxy,
    ):
        answer = httpx.post(f"{proxy.url}/v1/chat/completions", json=ASK)
        assert answer.headers["endpoint-load-metrics"] == (
            "TEXT named_metrics.num_requests_waiting=0,named_metrics.num_requests_running=1"
        )
        refused = httpx.post(f"{proxy.url}/v1/chat/completions", content=b"[1]")
        assert refused.status_code == 400
        assert "num_requests_running=0" in refused.headers["endpoint-load-metrics"]


def test_a_proxys_door_needs_an_engine_of_its_own(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path, "admit.port=0")
    code, errors = sidecar.finish()
    assert code == 2
    assert "admit.port is 0" in errors
    assert "an engine in backends" in errors
