"""The journal keeps what happened, and its file may fail."""

import json
import logging
import resource
from pathlib import Path

import pytest

from surgetank.control.journal import Journal
from surgetank.telemetry.clock import ManualClock


def note(journal: Journal, after: float) -> None:
    journal.write(
        who="ada", why="test", what="queue_requests", before=1, after=after, cause="operator"
    )


def test_an_entry_is_one_line_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    journal = Journal(ManualClock(epoch=1000.0), path)
    journal.write(
        who="ada", why="why", what="max_n", before=16, after=4, ttl=60.0, cause="operator"
    )
    assert json.loads(path.read_text()) == {
        "at": 1000.0,
        "who": "ada",
        "why": "why",
        "what": "max_n",
        "before": 16,
        "after": 4,
        "ttl": 60.0,
        "cause": "operator",
    }


def test_recent_is_the_newest_in_order_and_bounded() -> None:
    journal = Journal(ManualClock(), None, keep=3)
    for after in range(5):
        note(journal, after)
    assert [entry.after for entry in journal.recent(10)] == [2, 3, 4]
    assert [entry.after for entry in journal.recent(2)] == [3, 4]
    assert journal.recent(0) == []


def test_an_earlier_run_is_read_back_and_a_torn_line_skipped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    note(Journal(ManualClock(), path), 1)
    with path.open("ab") as file:
        file.write(b'{"at": 1.0, "who"')
    again = Journal(ManualClock(), path)
    note(again, 2)
    assert [entry.after for entry in again.recent()] == [1, 2]
    assert again.unreadable == 1
    assert [entry.after for entry in Journal(ManualClock(), path).recent()] == [1, 2]


def test_only_the_newest_of_a_long_file_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(ManualClock(), path)
    for after in range(100):
        note(first, after)
    again = Journal(ManualClock(), path, keep=5)
    assert [entry.after for entry in again.recent()] == [95, 96, 97, 98, 99]
    assert again.unreadable == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(ManualClock(), Path("/dev/full"))
    with caplog.at_level(logging.ERROR):
        for after in range(3):
            note(journal, after)
    assert journal.failures == 3
    assert [entry.after for entry in journal.recent()] == [0, 1, 2]
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_after_a_torn_write_the_next_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(ManualClock(), path)
    note(journal, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        note(journal, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    note(journal, 3)
    assert journal.failures == 1
    assert [entry.after for entry in Journal(ManualClock(), path).recent()] == [1, 3]


def test_a_path_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(ManualClock(), tmp_path / "file" / "journal.jsonl")
    note(journal, 1)
    assert journal.failures == 1
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


def test_a_file_that_works_again_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    journal = Journal(ManualClock(), folder / "journal.jsonl")
    folder.rmdir()
    note(journal, 1)
    folder.mkdir()
    note(journal, 2)
    assert journal.failures == 1
    assert json.loads((folder / "journal.jsonl").read_text())["after"] == 2
