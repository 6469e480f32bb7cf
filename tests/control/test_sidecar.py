"""The sidecar process: without an engine, with one that hangs, on a taken port, and its ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.fakes import tiny_card

from surgetank.engine.api import PROTOCOL, Hello
from surgetank.engine.wire import encode

pytestmark = pytest.mark.e2e

ASK = {"model": "default", "prompt": "hello", "max_tokens": 4}


class Sidecar:
    """A `surgetank sidecar` and where it listens."""

    def __init__(self, folder: Path, *settings: str, parent: int | None = None) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SURGETANK_")}
        if parent is not None:
            environment["SURGETANK_PARENT_PID"] = str(parent)
        every = [
            "http.port=0",
            "grpc.port=0",
            "admin.port=0",
            f"engine.socket={folder / 'engine.sock'}",
            f"control.journal={folder / 'journal.jsonl'}",
            *settings,
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "surgetank", "sidecar", *(f"--set={each}" for each in every)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    @property
    def listeners(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.line)["listeners"]
        return found

    def ask(self) -> httpx.Response:
        return httpx.post(f"{self.listeners['http']}/v1/completions", json=ASK, timeout=30)

    def state(self) -> tuple[str, int]:
        """The state and how many requests are in the engine."""
        status = httpx.get(f"{self.listeners['admin']}/status").json()
        return status["state"], status["requests"]["dispatched"]

    def until(self, state: tuple[str, int]) -> None:
        for _ in range(3000):
            if self.state() == state:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"never {state}: {self.state()}")

    def finish(self) -> tuple[int, str]:
        """Exit code and stderr."""
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


Start = Callable[..., Sidecar]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Sidecar] = []

    def begin(*settings: str, parent: int | None = None) -> Sidecar:
        started.append(Sidecar(tmp_path, *settings, parent=parent))
        return started[-1]

    yield begin
    for sidecar in started:
        if sidecar.process.poll() is None:
            sidecar.process.kill()
        sidecar.process.communicate(timeout=30)


@pytest.fixture
def hanging_engine(tmp_path: Path) -> Iterator[None]:
    """An engine that says hello, and then nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))
        listener.listen()
        peers = []

        def greet() -> None:
            peer, _ = listener.accept()
            peers.append(peer)
            peer.sendall(encode(Hello(PROTOCOL, tiny_card())))

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield
        for peer in peers:
            peer.close()


def test_without_an_engine_it_serves_refusals_and_drains_at_once(start: Start) -> None:
    sidecar = start()
    assert sidecar.state() == ("backend_down", 0)
    refused = sidecar.ask()
    assert refused.status_code == 503
    assert refused.json()["error"]["outcome"] == "backend_down"
    http = sidecar.listeners["http"]
    assert httpx.get(f"{http}/health/live").status_code == 200
    assert httpx.get(f"{http}/health/ready").status_code == 503
    assert "surgetank_backend_up" in httpx.get(f"{http}/metrics").text
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.finish()[0] == 0


@pytest.mark.parametrize("door", ["http", "grpc", "admin"])
def test_a_taken_port_is_one_sentence_and_exit_code_2(start: Start, door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sidecar = start(f"{door}.port={port}", "log.level=error")
        code, errors = sidecar.finish()
    assert code == 2
    assert sidecar.line == ""
    unknown = "taken, or not an address of this machine"
    reason = unknown if door == "grpc" else "address already in use"
    assert errors == (
        f"surgetank sidecar: {door}: cannot listen on 127.0.0.1:{port} ({reason}); "
        f"choose another with --set {door}.port=N\n"
    )


def test_it_ends_when_its_parent_is_gone(start: Start) -> None:
    code, errors = start(parent=1).finish()
    assert code == 0
    assert "the process that started this one is gone" in errors


@pytest.mark.usefixtures("hanging_engine")
def test_what_does_not_finish_in_time_is_cut_off_and_told(start: Start) -> None:
    sidecar = start("control.drain_timeout=0.2")
    sidecar.until(("ready", 0))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sidecar.ask)
        sidecar.until(("ready", 1))
        sidecar.process.send_signal(signal.SIGTERM)
        answer = asked.result(30)
    assert answer.status_code == 503
    assert answer.json()["error"]["outcome"] == "draining"
    code, errors = sidecar.finish()
    assert code == 0
    assert "not drained within 0.2 s" in errors


@pytest.mark.usefixtures("hanging_engine")
def test_a_second_signal_does_not_wait(start: Start) -> None:
    sidecar = start("control.drain_timeout=3600")
    sidecar.until(("ready", 0))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sidecar.ask)
        sidecar.until(("ready", 1))
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.until(("draining", 1))
        sidecar.process.send_signal(signal.SIGTERM)
        assert asked.result(30).status_code == 503
    assert sidecar.finish()[0] == 1
