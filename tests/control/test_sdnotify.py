"""What a service manager hears from `surgetank run`: ready, alive, stopping."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surgetank.control.sdnotify import ServiceManager

SCRIPT = Path(__file__).with_name("fake_processes.py")


class Manager:
    """The receiving end: a datagram socket, at a path that is short enough for one."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(20)
        self._socket.bind(self.address)

    def hear(self) -> list[str]:
        """The next datagram's lines."""
        return self._socket.recv(4096).decode().splitlines()

    def until(self, line: str) -> list[str]:
        """Everything heard up to `line`."""
        heard: list[str] = []
        while line not in heard:
            heard += self.hear()
        return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager() -> Iterator[Manager]:
    with tempfile.TemporaryDirectory() as folder:
        made = Manager(Path(folder))
        yield made
        made.close()


@contextmanager
def supervised(manager: Manager, folder: Path, engine: str, sidecar: str) -> Iterator[None]:
    """A supervisor that tells `manager`; stopped at the end."""
    (folder / "log").touch()
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "supervise", str(folder), engine, sidecar],
        env={"NOTIFY_SOCKET": manager.address},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def until_asked(folder: Path, times: int) -> None:
    """Wait until the supervisor has asked a hung sidecar so often whether it lives."""
    for _ in range(2000):
        if (folder / "log").read_text().count("asked whether it lives") >= times:
            return
        threading.Event().wait(0.01)
    raise AssertionError("nobody asked")


def test_it_hears_ready_alive_and_stopping(manager: Manager, tmp_path: Path) -> None:
    with supervised(manager, tmp_path, "serve", "serve"):
        manager.until("STATUS=ready")
        manager.until("WATCHDOG=1")
    assert manager.until("STATUS=draining")[-2:] == ["STOPPING=1", "STATUS=draining"]


def test_a_hung_engine_of_ours_is_not_alive(manager: Manager, tmp_path: Path) -> None:
    with supervised(manager, tmp_path, "serve", "hung"):
        manager.until("READY=1")
        until_asked(tmp_path, times=3)
    heard = manager.until("STOPPING=1")
    assert "WATCHDOG=1" not in heard


def test_anothers_hung_engine_is_not_ours_to_restart(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "engine.pid").write_text(str(os.getpid()))  # it runs, whoever started it
    with supervised(manager, tmp_path, "none", "hung"):
        manager.until("READY=1")
        until_asked(tmp_path, times=1)
        manager.until("WATCHDOG=1")


def test_nobody_is_told_where_nobody_asked() -> None:
    ServiceManager({}).tell(READY="1")


def test_an_abstract_address_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(5)
        receiver.bind("")  # the kernel chooses an abstract name
        address = "@" + receiver.getsockname()[1:].decode()
        ServiceManager({"NOTIFY_SOCKET": address}).tell(READY="1", STATUS="serving")
        assert receiver.recv(100) == b"READY=1\nSTATUS=serving"


def test_a_manager_that_is_gone_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell(STOPPING="1")
    assert "could not be told STOPPING" in caplog.text
