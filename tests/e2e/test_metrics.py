"""What Prometheus gets of the running product: both processes, everything that can be known."""

import asyncio
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from tests.e2e.junk import send_junk
from tests.e2e.running import PATIENCE, Running, until

from surgetank.telemetry.catalog import CATALOG, MetricSpec
from surgetank.telemetry.metricspec import Process

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

OPEN = {"Accept": "application/openmetrics-text; version=1.0.0"}
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]

# What a sidecar with one engine, or an engine on a CPU, has nothing to say of.
ABSENT = {
    "backend_signal_available",  # of other makers' engines alone
    "queue_oldest_age_seconds",  # nobody waits
    "policy_canary_goodput_ratio",
    "fleet_leader",
    "memory_alloc_retries_total",
    "compute_gpu_up",
    "compute_gpu_ratio",
    "compute_gpu_throttle_seconds_total",
    "compute_xid_total",
    "compute_gpu_driver_losses_total",
}
# What must have moved once some requests were served, and one was for a model that is not there.
MOVED = {
    *("requests_received_total", "requests_total", "request_failures_total", "tokens_total"),
    *("request_duration_seconds", "request_time_to_first_token_seconds", "slo_events_total"),
    *("request_time_per_output_token_seconds", "inter_token_latency_seconds"),
    *("slo_target_seconds", "queue_wait_seconds", "admission_decisions_total", "limit"),
    *("headers_ignored_total", "retry_arrivals_total", "retry_budget_seconds", "drain_rate"),
    *("wait_threshold_seconds", "request_cost_seconds", "backend_up", "build_info"),
    *("batch_steps_total", "batch_slot_steps_total", "batch_scheduled_seqs_total"),
    *("batch_seq_capacity_total", "batch_scheduled_tokens_total", "batch_token_budget_total"),
    *("memory_kv_blocks", "memory_kv_block_size_tokens", "memory_device_bytes"),
    *("memory_prefix_tokens_total", "compute_step_seconds", "compute_loop_seconds_total"),
    *("compute_operator_seconds_total", "compute_sampled_steps_total"),
    *("compute_estimated_flops_total", "compute_estimated_bytes_total"),
    *("telemetry_label_overflow_total", "telemetry_scrape_seconds"),
}
# An engine has no labels that clients could fill.
STILL = {Process.SIDECAR: set[str](), Process.ENGINE: {"telemetry_label_overflow_total"}}


def urls(service: Running) -> dict[Process, str]:
    return {
        Process.SIDECAR: f"{service.http}/metrics",
        Process.ENGINE: f"http://127.0.0.1:{service.metrics_port}/metrics",
    }


def scrape(url: str) -> Series:
    """In both formats, which must be read alike by their parsers."""
    plain = httpx.get(url, timeout=PATIENCE).raise_for_status().text
    opened = httpx.get(url, headers=OPEN, timeout=PATIENCE).raise_for_status().text
    assert opened.endswith("# EOF\n")
    families = list(parse_open(opened))  # type: ignore[no-untyped-call]
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    assert {sample.name for family in parse_plain(plain) for sample in family.samples} == {
        name for name, _ in found
    }
    return found


def of(series: Series, spec: MetricSpec) -> list[float]:
    names = {spec.full_name, f"{spec.full_name}_count"}
    return [value for (name, _), value in series.items() if name in names]


def total(series: Series, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    full = CATALOG[name].full_name
    return sum(value for (each, said), value in series.items() if each == full and wanted <= said)


def busy(service: Running, seconds: float) -> None:
    """Some clients at once, plain and streamed, until the time is over."""
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        while time.monotonic() < end:
            service.ask(prompt=f"Once upon a time {number}", max_tokens=24)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(client, range(4)))


def test_both_processes_tell_all_that_can_be_known(service: Running) -> None:
    sampled = urls(service)[Process.ENGINE]
    while not total(scrape(sampled), "compute_sampled_steps_total"):
        busy(service, 1)
    junk = {"x-surgetank-priority": "junk", "x-stainless-retry-count": "1"}
    body = {"model": "not-here", "prompt": "x"}
    assert httpx.post(f"{service.http}/v1/completions", json=body, headers=junk).status_code == 404
    for process, url in urls(service).items():
        scrape(url)
        series = scrape(url)
        specs = [spec for spec in CATALOG.values() if process.exports(spec)]
        absent = {spec.name for spec in specs if not of(series, spec)}
        assert absent <= ABSENT
        still = {spec.name for spec in specs if not any(of(series, spec))}
        assert still & MOVED <= STILL[process]
        assert len(series) < 3000


def test_the_engines_time_is_all_accounted_for_also_while_it_idles(service: Running) -> None:
    url = urls(service)[Process.ENGINE]

    def told(**labels: str) -> float:
        return total(scrape(url), "compute_loop_seconds_total", **labels)

    service.ask()  # its last step has just been told
    before, begun = told(), time.monotonic()
    busy(service, 3)
    idle = told(stage="idle")
    until(lambda: told(stage="idle") >= idle + 3, "idle time is told while it passes")
    service.ask()
    assert told() - before == pytest.approx(time.monotonic() - begun, rel=0.02)


def test_a_cancelled_request_leaves_no_drift(service: Running) -> None:
    url = urls(service)[Process.SIDECAR]
    body = {
        "model": "default",
        "prompt": "Once upon a time there was",
        "max_tokens": 1500,
        "ignore_eos": True,
        "stream": True,
    }
    with httpx.stream(
        "POST", f"{service.http}/v1/completions", json=body, timeout=PATIENCE
    ) as answer:
        lines = answer.iter_lines()  # its end would close the connection
        next(lines)
        until(lambda: total(scrape(url), "limit_usage", limit="in_flight_seqs") == 1, "it runs")
    until(lambda: total(scrape(url), "requests_in_flight") == 0, "the client is gone")
    until(lambda: total(scrape(url), "ledger_drift") == 0, "gate and engine agree")
    engine = urls(service)[Process.ENGINE]
    until(lambda: total(scrape(engine), "batch_running_requests") == 0, "the engine is empty")
    assert total(scrape(url), "ledger_drift") == 0


def test_twenty_thousand_junk_names_make_no_series(service: Running) -> None:
    url = urls(service)[Process.SIDECAR]
    scrape(url)
    before = scrape(url)
    assert asyncio.run(send_junk(service.http, 20_000)) == 20_000
    after = scrape(url)
    assert set(after) == set(before)
    assert len(after) < 3000

    def grown(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert grown("requests_total", model="other", outcome="not_found") == 20_000
    assert grown("telemetry_label_overflow_total", label="model") == 20_000
    for header in ("x-surgetank-priority", "x-stainless-retry-count"):
        assert grown("headers_ignored_total", header=header, problem="malformed") == 20_000
    assert service.ask().status_code == 200


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
def test_prometheus_own_linter_finds_nothing(service: Running) -> None:
    for url in urls(service).values():
        page = httpx.get(url, timeout=PATIENCE).content
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")
