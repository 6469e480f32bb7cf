"""Each fault, done to the running product: its alert and no wrong one, the verdict, and the cure.

The runbook's commands are run as they stand, each first as a rehearsal where the runbook says so,
while the fault goes on; what the runbook leaves to people is done where it says so.
"""

import signal

import pytest
from tests.e2e.faults.plant import Plant, cure
from tests.e2e.faults.traffic import Crowd, Habits
from tests.e2e.running import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def calm(plant: Plant, guests: Crowd) -> None:
    """Each fault begins, and the one before has ended, with nothing wrong."""
    plant.until_calm()
    plant.until_verdict("healthy")


def test_nothing_fires_at_idle_on_first_traffic_after_cancels_and_when_all_is_well(
    plant: Plant, guests: Crowd
) -> None:
    until(lambda: guests.codes[200] >= 20, "the guests are served")
    with Crowd(plant.product.http, 4, Habits(output=400, patience=0.3, pause=1.0)) as hasty:
        until(lambda: hasty.codes[0] >= 20, "clients went away")
        assert plant.until_verdict("healthy")["next"] == "surgetank top"
    assert not plant.pending("LedgerDrift")
    ever = plant.prometheus.query(
        'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))'
    )
    assert {labels["alertname"] for labels, _ in ever} <= {"Watchdog"}


def test_a_stopped_engine(plant: Plant, guests: Crowd) -> None:
    allowed = frozenset(
        {
            "MetricsAbsent",  # a stopped process answers no scrape
            "BrownOut",  # the ladder goes up while the engine stands
            "ErrorBudgetBurn",  # those in flight are late for good
            "QueueWaitHigh",  # whoever came before the stall was seen waits in vain
        }
    )
    engine = plant.product.status()["engine"]["pid"]
    plant.signal_engine(signal.SIGSTOP)
    plant.until_verdict("backend")
    plant.until_firing("EngineStalled", allowed)
    found = plant.verdict()
    assert found["verdict"] == "backend"
    assert "has made no step for" in found["evidence"][0]
    assert found["next"] == "surgetank stacks"

    def resume(before: str) -> None:
        if before.startswith("surgetank undrain"):
            plant.signal_engine(signal.SIGCONT)

    cure(plant, "EngineStalled", human=resume)
    assert plant.product.status()["engine"]["pid"] == engine
    served = guests.codes[200]
    until(lambda: guests.codes[200] > served + 5, "the guests are served again")


def test_clients_that_retry_at_once(plant: Plant) -> None:
    allowed = frozenset(
        {
            "ComputeLimited",  # the engine is full of what nobody will read
            "ErrorBudgetBurn",
        }
    )
    hasty = Habits(output=200, patience=0.15, tries=4, obeys=False)
    storm = Crowd(plant.product.http, 40, hasty)
    with storm:
        plant.until_firing("RetryStorm", allowed)
        found = plant.until_verdict("clients")
        assert "arrivals per first attempt" in found["evidence"][0]

        def teach(before: str) -> None:
            if before.startswith("surgetank undrain"):
                storm.behave(Habits(output=20, pause=0.5))

        cure(plant, "RetryStorm", human=teach)
        served = storm.codes[200]
        until(lambda: storm.codes[200] > served + 40, "those who stormed are served")


def test_answers_too_long_for_the_pool(plant: Plant) -> None:
    allowed = frozenset(
        {
            "ShedHigh",  # it lasts
            "QueueWaitHigh",  # one answer's wait for blocks is as long as this alert waits here
        }
    )
    with Crowd(plant.product.http, 30, Habits(output=1900)):
        plant.until_firing("MemoryLimited", allowed)
        found = plant.until_verdict("memory")
        assert "blocks are promised or used" in found["evidence"][0]
        cure(plant, "MemoryLimited")


def test_a_token_budget_too_small_for_prompts(plant: Plant) -> None:
    # What they send leaves the engine room at its own budget, and is twice what it reads at this.
    plant.run('surgetank limits set max_batch_tokens 8 --ttl 15m --why "a drill"')
    with Crowd(plant.product.http, 12, Habits(prompt=500, output=4, pause=0.3)):
        plant.until_firing("SchedulingLimited")
        found = plant.until_verdict("scheduling")
        assert "a step of at most 8 tokens takes" in found["evidence"][0]
        assert found["next"].startswith("surgetank limits clear max_batch_tokens")
        cure(plant, "SchedulingLimited")


def test_a_redis_that_is_gone(plant: Plant, guests: Crowd) -> None:
    plant.redis.kill()
    plant.until_firing("SharedStateLost")
    served = guests.codes[200]
    until(lambda: guests.codes[200] > served + 5, "the guests are served without Redis")
    assert plant.verdict()["verdict"] == "healthy"

    def restart(before: str) -> None:
        if before == "surgetank fleet":
            plant.redis.start()

    cure(plant, "SharedStateLost", human=restart)


def test_a_limit_at_its_floor(plant: Plant) -> None:
    plant.run('surgetank limits set in_flight_seqs 1 --ttl 15m --why "a drill"')
    with Crowd(plant.product.http, 10, Habits(output=100)):
        # The same limit keeps the slots empty, which may be told first or later.
        plant.until_firing("LimitAtFloor", frozenset({"LimitBinding"}))
        found = plant.until_verdict("limit")
        assert "limit in_flight_seqs is 1 sequences" in found["evidence"][0]
        assert "(a drill)" in found["evidence"][0]
        assert found["next"].startswith("surgetank limits clear in_flight_seqs")
        cure(plant, "LimitAtFloor", limit="in_flight_seqs")
