"""The faults that take longer or come seldom, done to the running product as the others are."""

import itertools
import shutil

import httpx
import pytest
from tests.e2e.faults.plant import Plant, cure
from tests.e2e.faults.traffic import Crowd, Habits
from tests.e2e.running import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def calm(plant: Plant, guests: Crowd) -> None:
    """Each fault begins, and the one before has ended, with nothing wrong."""
    plant.until_calm()
    plant.until_verdict("healthy")


def test_a_limit_that_keeps_work_out(plant: Plant) -> None:
    plant.run('surgetank limits set max_num_seqs 4 --ttl 15m --why "a drill"')
    with Crowd(plant.product.http, 12, Habits(output=100)):
        plant.until_firing("LimitBinding")
        assert "max_num_seqs is 4" in plant.until_verdict("limit")["evidence"][0]
        cure(plant, "LimitBinding")


def test_a_rung_pinned_to_critical_only(plant: Plant) -> None:
    plant.run('surgetank limits set brownout_level 4 --ttl 15m --why "a drill"')
    # Whoever is refused for it is refused for long.
    plant.until_firing("BrownOut", frozenset({"ShedHigh"}))
    assert "brownout_level is 4" in plant.until_verdict("limit")["evidence"][0]
    cure(plant, "BrownOut")


def test_more_work_than_the_engine_can_do(plant: Plant) -> None:
    with Crowd(plant.product.http, 100, Habits(output=150)) as crowd:
        # It is the same shortage, where promises are broken.
        allowed = frozenset({"ComputeLimited", "ErrorBudgetBurn"})
        plant.until_firing("ShedHigh", allowed)
        plant.until_verdict("compute")
        crowd.behave(Habits(output=10, pause=5.0))  # as if a replica had come
        cure(plant, "ShedHigh")


def test_a_journal_that_cannot_be_written(plant: Plant) -> None:
    journal = plant.product.folder / "journal.jsonl"
    plant.run('surgetank limits set max_n 15 --ttl 15m --why "a drill"')
    kept = journal.rename(journal.with_suffix(".kept"))
    journal.mkdir()
    plant.run('surgetank limits clear max_n --why "a drill"')
    plant.until_firing("JournalFailing")

    def give_back(before: str) -> None:
        if journal.is_dir():
            journal.rmdir()
            shutil.move(kept, journal)

    cure(plant, "JournalFailing", human=give_back)
    assert "is it written?" in journal.read_text("utf-8")
    plant.run('surgetank limits clear max_n --why "the drill is over"')


def test_names_that_no_list_has(plant: Plant) -> None:
    numbers = itertools.count()

    def ask() -> bool:
        number = next(numbers)
        body = {"model": f"junk-{number}", "prompt": "x", "max_tokens": 1}
        answer = httpx.post(f"{plant.product.http}/v1/completions", json=body, timeout=60.0)
        assert answer.status_code == 404
        return number % 20 == 0 and "LabelOverflow" in plant.firing()

    until(ask, "LabelOverflow fires")
    assert plant.firing() == {"LabelOverflow"}
    cure(plant, "LabelOverflow")


def test_sequences_that_outgrow_the_pool(plant: Plant) -> None:
    """Those that come to their end are short, so that little is promised to any; those that go on
    are given up. To promise less of the pool then is what the operator has forbidden."""
    for limit, value in (("kv_watermark", "0.1"), ("kv_reserve", "max")):
        plant.run(f'surgetank limits set {limit} {value} --ttl 15m --why "a drill"')
    short = Habits(output=400, fields={"ignore_eos": False, "stop": ["a", "b", "c", "d"]})
    long = Habits(output=500, patience=1.5, fields={"ignore_eos": False, "min_tokens": 500})
    with Crowd(plant.product.http, 10, short), Crowd(plant.product.http, 30, long):
        # The gate, too, keeps work out, by what is left of the pool.
        allowed = frozenset({"MemoryLimited", "ErrorBudgetBurn", "QueueWaitHigh", "ShedHigh"})
        plant.until_firing("PreemptionThrash", allowed)
        plant.until_verdict("memory")
        cure(plant, "PreemptionThrash")
