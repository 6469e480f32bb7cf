"""`surgetank run`'s supervisor over tiny real processes: start, crash, mistakes and signals."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("fake_processes.py")


class Run:
    """A supervisor in a process of its own, and the events that it has told."""

    def __init__(self, folder: Path, engine: str, sidecar: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "supervise", str(folder), engine, sidecar],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []

    def until(self, event: str) -> dict[str, Any]:
        """Read events up to one of that name."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == event:
                return self.events[-1]
        raise AssertionError(f"no {event}: {self.events}, {self.finish()}")

    def finish(self) -> tuple[int, str]:
        """Exit code and stderr; the remaining events are read."""
        out, err = self.process.communicate(timeout=30)
        self.events += [json.loads(line) for line in out.splitlines()]
        return self.process.returncode, err

    @property
    def engine_pid(self) -> int:
        return int((self.folder / "engine.pid").read_text())

    def until_logged(self, line: str, times: int) -> None:
        """Wait until the children have noted `line` so often."""
        while self.log().count(line) < times:
            assert self.process.poll() is None
            threading.Event().wait(0.01)

    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


Start = Callable[[str, str], Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs = []

    def begin(engine: str, sidecar: str) -> Run:
        runs.append(Run(tmp_path, engine, sidecar))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            for _ in range(2):
                run.process.send_signal(signal.SIGTERM)
        run.process.communicate(timeout=30)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_ready_is_told_with_urls_and_one_signal_drains_then_stops(start: Start) -> None:
    run = start("serve", "serve")
    assert set(run.until("ready")["listeners"]) == {"http", "admin", "grpc"}
    run.process.send_signal(signal.SIGINT)
    assert run.finish()[0] == 0
    assert run.log() == ["engine up", "sidecar down", "engine down"]
    assert [event["event"] for event in run.events[-3:]] == ["draining", "stopped", "stopped"]
    assert gone(run.engine_pid)


def test_a_killed_engine_comes_back_and_its_death_is_told(start: Start) -> None:
    run = start("serve", "serve")
    run.until("ready")
    first = run.engine_pid
    os.kill(first, signal.SIGKILL)
    died = run.until("died")
    assert died["exit_code"] == -9
    assert died["restarts"] == 1
    assert "signal 9 (SIGKILL)" in died["text"]
    run.until_logged("engine up", times=2)
    assert run.engine_pid != first
    run.process.send_signal(signal.SIGTERM)
    assert run.finish()[0] == 0
    assert run.log() == ["engine up", "engine up", "sidecar down", "engine down"]


def test_an_engine_that_keeps_crashing_is_retried_with_its_last_words(start: Start) -> None:
    run = start("crash", "serve")
    deaths = [run.until("died") for _ in range(5)]
    assert [death["restarts"] for death in deaths] == [1, 2, 3, 4, 5]
    assert deaths[0]["exit_code"] == 7
    assert deaths[0]["last_lines"] == ["out of luck"]
    delays = [death["text"].rpartition(" in ")[2] for death in deaths]
    assert delays == ["0.01 s", "0.02 s", "0.04 s", "0.05 s", "0.05 s"]
    run.process.send_signal(signal.SIGTERM)
    assert run.finish()[0] == 0


@pytest.mark.parametrize(
    ("engine", "sidecar", "sentence"),
    [
        ("mistake", "serve", "engine: no model at /nowhere"),
        ("serve", "mistake", "sidecar: 127.0.0.1:8400: the port is in use"),
    ],
)
def test_a_users_mistake_stops_everything(
    start: Start, engine: str, sidecar: str, sentence: str
) -> None:
    run = start(engine, sidecar)
    failed = run.until("failed")
    assert failed["text"] == sentence
    assert run.finish()[0] == 2
    pid_file = run.folder / "engine.pid"
    assert not pid_file.exists() or gone(int(pid_file.read_text()))


def test_a_second_signal_ends_a_slow_drain_at_once(start: Start) -> None:
    run = start("serve", "slow")
    run.until("ready")
    run.process.send_signal(signal.SIGINT)
    run.until("draining")
    run.process.send_signal(signal.SIGINT)
    assert run.finish()[0] == 1
    assert "killed" in [event["event"] for event in run.events]
    assert gone(run.engine_pid)


def test_an_engine_that_ignores_the_signal_is_killed_in_time(start: Start) -> None:
    run = start("stubborn", "serve")
    run.until("ready")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish()[0] == 0
    assert run.events[-1]["text"] == "engine stopped (signal 9 (SIGKILL))"
    assert gone(run.engine_pid)
