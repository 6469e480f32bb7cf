"""The registry starts at 0, caps what clients can name, and refuses what is not declared."""

import logging
import threading
from collections.abc import Iterator

import pytest

from surgetank.telemetry.family import HistogramReading
from surgetank.telemetry.metricspec import Process
from surgetank.telemetry.registry import MAX_OWN_VALUES, Reading, Registry, Sample
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Lane, Outcome


@pytest.fixture
def registry() -> Registry:
    return Registry(Process.SIDECAR)


def read(registry: Registry, name: str) -> Reading:
    (reading,) = [reading for reading in registry.read() if reading.spec.name == name]
    return reading


def series(reading: Reading) -> int:
    """How many lines a scrape shows for it."""
    return sum(
        len(value.counts) + 2 if isinstance(value, HistogramReading) else 1
        for value in reading.samples.values()
    )


def test_every_known_combination_starts_at_zero(registry: Registry) -> None:
    registry.allow("model", "smol")
    samples = read(registry, "requests_total").samples
    assert len(samples) == 3 * len(Outcome) * len(Lane) * 4
    assert set(samples.values()) == {0.0}
    assert samples["smol", "overload", "retry", "sheddable"] == 0.0


@pytest.mark.parametrize("process", [Process.SIDECAR, Process.ENGINE])
def test_a_fresh_registry_has_few_series(process: Process) -> None:
    registry = Registry(process)
    if process is Process.SIDECAR:
        registry.allow("model", "smol", "second")
    assert sum(series(reading) for reading in registry.read()) < 3000


def test_label_junk_from_clients_makes_no_series(registry: Registry) -> None:
    registry.allow("model", "smol")
    requests = registry.counter("requests_total")
    before = len(requests.children())
    for number in range(20_000):
        requests.at(f"junk-{number}", "ok", "first", "default").value += 1
    requests.at("smol", "ok", "first", "default").value += 1
    samples = read(registry, "requests_total").samples
    assert len(samples) == before
    assert samples["other", "ok", "first", "default"] == 20_000
    assert samples["smol", "ok", "first", "default"] == 1
    assert read(registry, "telemetry_label_overflow_total").samples["model",] == 20_000


def test_our_own_names_are_taken_up_to_a_cap(registry: Registry) -> None:
    changes = registry.counter("limit_changes_total")
    for number in range(MAX_OWN_VALUES + 5):
        changes.at(f"limit-{number}", "up", "operator").value += 1
    samples = read(registry, "limit_changes_total").samples
    assert samples["limit-0", "up", "operator"] == 1
    assert samples["limit-0", "down", "expiry"] == 0  # its other series start with it
    assert samples["other", "up", "operator"] == 5
    assert read(registry, "telemetry_label_overflow_total").samples["limit",] == 5


def test_what_the_catalogue_does_not_know_is_refused(registry: Registry) -> None:
    with pytest.raises(LookupError, match="requests_made_total: no such metric"):
        registry.counter("requests_made_total")
    with pytest.raises(LookupError, match="counter of engine; wanted a counter of sidecar"):
        registry.counter("batch_steps_total")
    with pytest.raises(LookupError, match="gauge of sidecar; wanted a counter"):
        registry.counter("queue_requests")
    with pytest.raises(ValueError, match="label outcome is 'fine'; allowed: ok, invalid"):
        registry.counter("requests_total").at("other", "fine", "first", "default")
    with pytest.raises(ValueError, match="got 1 values"):
        registry.counter("requests_total").at("other")
    with pytest.raises(LookupError, match="no open label"):
        registry.allow("outcome", "fine")
    with pytest.raises(ValueError, match="allowed: sidecar, engine"):
        Registry(Process.BOTH)


def test_a_gauge_that_cannot_be_known_is_absent(registry: Registry) -> None:
    ages: dict[str, float] = {}

    def oldest() -> Iterator[Sample]:
        for priority, age in ages.items():
            yield {"priority": priority}, age

    registry.source("queue_oldest_age_seconds", oldest)
    assert read(registry, "queue_oldest_age_seconds").samples == {}
    ages["batch"] = 1.5
    assert read(registry, "queue_oldest_age_seconds").samples == {("batch",): 1.5}


def test_a_counter_that_is_kept_elsewhere_is_read_and_absent_until_it_is_known() -> None:
    registry = Registry(Process.ENGINE)
    assert read(registry, "compute_xid_total").samples == {}
    registry.source("compute_xid_total", lambda: [({"device": "cuda:0"}, 2)])
    assert read(registry, "compute_xid_total").samples == {("cuda:0",): 2.0}
    with pytest.raises(LookupError, match="a counter of engine, read when scraped; wanted a"):
        registry.counter("compute_xid_total")
    with pytest.raises(LookupError, match="a counter of engine; wanted a source of engine"):
        registry.source("batch_steps_total", lambda: [({"kind": "decode"}, 1)])


def test_labels_of_a_gauge_are_put_in_order(registry: Registry) -> None:
    registry.source("limit", lambda: [({"bound": "max", "limit": "queue_tokens"}, 9)])
    registry.source("limit", lambda: [({"limit": "queue_tokens", "bound": "min"}, 1)])
    samples = read(registry, "limit").samples
    assert samples == {("queue_tokens", "max"): 9.0, ("queue_tokens", "min"): 1.0}


@pytest.mark.parametrize(
    ("labels", "value"),
    [
        ({"lane": "first"}, 1.0),
        ({"lane": "third", "priority": "batch"}, 1.0),
        ({"lane": "first", "priority": "batch"}, "many"),
    ],
)
def test_a_broken_gauge_is_absent_counted_and_logged_once(
    registry: Registry, caplog: pytest.LogCaptureFixture, labels: dict[str, str], value: float
) -> None:
    registry.source("queue_requests", lambda: [(labels, value)])
    registry.source("queue_tokens", lambda: [({"priority": "batch"}, 7)])
    with caplog.at_level(logging.ERROR):
        registry.read()
        registry.read()
    assert read(registry, "queue_requests").samples == {}
    assert read(registry, "queue_tokens").samples == {("batch",): 7.0}
    assert read(registry, "telemetry_source_errors_total").samples["queue_requests",] == 5
    assert [record.getMessage() for record in caplog.records] == [
        "surgetank_queue_requests cannot be read and is absent"
    ]


def test_the_targets_are_edges() -> None:
    registry = Registry(Process.SIDECAR, SloTargets(ttft=0.33, tpot=0.07))
    ttft = registry.histogram("request_time_to_first_token_seconds").at("other", "default")
    tpot = registry.histogram("request_time_per_output_token_seconds").at("other")
    assert 0.33 in ttft.read().edges
    assert 0.07 in tpot.read().edges


def test_a_scrape_beside_the_writer_sees_whole_histograms(registry: Registry) -> None:
    advised = registry.histogram("retry_backoff_advised_seconds").at()
    changes = registry.counter("limit_changes_total")
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            advised.observe(0.3)
            number += 1
            changes.at(f"limit-{number % 40}", "up", "operator").value += 1

    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    for _ in range(100):
        seen = read(registry, "retry_backoff_advised_seconds").samples[()]
        assert isinstance(seen, HistogramReading)
        counts.append(seen.count)
    done.set()
    writer.join(timeout=10)
    assert counts == sorted(counts)
    final = advised.read()
    assert final.sum == pytest.approx(0.3 * final.count)
