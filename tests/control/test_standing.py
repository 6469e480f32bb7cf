"""What operators set outlives a crash of the sidecar, and not its orderly end."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes import engine_look

from surgetank.admission.limits import Limit, Limits
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.drain import Drain
from surgetank.control.journal import Journal
from surgetank.control.standing import Standing, standing_path
from surgetank.telemetry.clock import ManualClock

NAME = Limit.QUEUE_REQUESTS


class Process:
    """A sidecar's limits and drain in one life; clocks differ from life to life."""

    def __init__(self, folder: Path, wall: float, names: Sequence[str] = ("a", "b")) -> None:
        self.path = standing_path(folder / "run" / "engine.sock")
        self.clock = ManualClock(random.Random(wall).uniform(0, 1e6), wall)
        self.limits = Limits()
        self.journal = Journal(self.clock, None)
        self.drain = Drain(self.clock, self.journal, lambda _: self.standing.save())
        engines = [engine_look(name) for name in names]
        self.backends = BackendDrains(
            self.clock, self.journal, names, lambda: engines, lambda *_: self.standing.save()
        )
        self.standing = Standing(
            self.path, self.clock, self.limits, self.drain, self.backends, self.journal
        )
        self.standing.restore()

    def set(self, value: float, ttl: float) -> None:
        until = self.clock.monotonic() + ttl
        self.limits.override(NAME, value, until=until, who="ann", why="storm")

    @property
    def lasts(self) -> float:
        return self.limits.next_expiry - self.clock.monotonic()


def test_an_override_and_an_open_drain_come_back_after_a_crash(tmp_path: Path) -> None:
    first = Process(tmp_path, 1000.0)
    first.set(7, ttl=600)
    first.drain.begin("bob", "kernel", None)
    second = Process(tmp_path, 1100.0)
    assert second.limits.get(NAME) == 7
    assert second.lasts == pytest.approx(500)
    assert second.drain.hold is not None
    assert (second.drain.hold.who, second.drain.hold.until) == ("bob", None)
    entries = [(entry.what, entry.who, entry.cause) for entry in second.journal.recent()]
    assert entries == [("queue_requests", "ann", "restart"), ("draining", "bob", "restart")]
    second.drain.end("bob", "done")
    assert not Process(tmp_path, 1200.0).drain.active


def test_an_engine_that_drains_still_does_after_a_crash(tmp_path: Path) -> None:
    first = Process(tmp_path, 1000.0)
    first.backends.begin("a", who="ann", why="new driver", ttl=None)
    first.backends.begin("b", who="bob", why="noise", ttl=600, force=True)
    second = Process(tmp_path, 1100.0)
    holds = second.backends.holds
    assert {name: (hold.who, hold.why) for name, hold in holds.items()} == {
        "a": ("ann", "new driver"),
        "b": ("bob", "noise"),
    }
    assert holds["a"].until is None
    assert holds["b"].until == pytest.approx(second.clock.monotonic() + 500)
    assert [entry.cause for entry in second.journal.recent()] == ["restart", "restart"]
    second.backends.end("a", who="ann", why="done")
    assert [*Process(tmp_path, 1200.0).backends.holds] == ["b"]


def test_the_drain_of_an_engine_that_is_configured_no_more_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Process(tmp_path, 1000.0).backends.begin("a", who="ann", why="driver", ttl=None)
    assert not Process(tmp_path, 1001.0, ["b"]).backends.holds
    assert "a is no engine here; there are: b" in caplog.text


def test_what_is_over_stays_over(tmp_path: Path) -> None:
    first = Process(tmp_path, 1000.0)
    first.set(7, ttl=60)
    first.drain.begin("bob", "kernel", 60)
    later = Process(tmp_path, 1061.0)
    assert later.limits.get(NAME) != 7
    assert not later.drain.active
    assert not later.path.exists()


def test_nothing_is_left_after_an_orderly_end(tmp_path: Path) -> None:
    first = Process(tmp_path, 1000.0)
    first.set(7, ttl=600)
    first.standing.forget()
    first.limits.clear(NAME)
    first.set(8, ttl=600)
    assert Process(tmp_path, 1001.0).limits.get(NAME) not in (7, 8)


def test_a_final_drain_is_not_begun_again(tmp_path: Path) -> None:
    Process(tmp_path, 1000.0).drain.begin_final("surgetank", "a signal")
    assert not Process(tmp_path, 1001.0).drain.active


def test_a_file_that_cannot_be_used_is_said_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Process(tmp_path, 1000.0)
    first.set(7, ttl=600)
    first.path.write_text('{"limits": {"nonsense": ')
    assert Process(tmp_path, 1001.0).limits.get(NAME) != 7
    assert "cannot be read" in caplog.text
    first.path.write_text(
        '{"limits": {"no_such": {"who": "a", "why": "b", "until": 9e9, "value": 1}}}'
    )
    Process(tmp_path, 1001.0)
    assert "no limit 'no_such'" in caplog.text


def test_another_users_file_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Process(tmp_path, 1000.0).set(7, ttl=600)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert Process(tmp_path, 1001.0).limits.get(NAME) != 7
    assert "it is another user's" in caplog.text
