"""A `surgetank run` in a process of its own, as a test sees it: events, addresses, exit."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

PATIENCE = 120.0  # seconds for anything on a busy machine


class Running:
    """Starts it on entering; on leaving it is stopped, whatever the test did."""

    def __init__(self, folder: Path, *extra: str) -> None:
        self.folder = folder
        self.metrics_port = _free_port()
        self.events: list[dict[str, Any]] = []
        self._inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        settings = {
            "http.port": 0,
            "grpc.port": 0,
            "admin.port": 0,
            "engine.metrics_port": self.metrics_port,
            "engine.socket": folder / "engine.sock",
            "engine.threads": 1,
            "control.journal": folder / "journal.jsonl",
        }
        pairs = [f"--set={key}={value}" for key, value in settings.items()]
        self._command = [sys.executable, "-m", "surgetank", "run", "--json", *pairs, *extra]

    def __enter__(self) -> Self:
        self._errors = (self.folder / "stderr").open("wb")
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, env=_clean_environment()
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for grace in (60.0, 20.0):
            if self.process.poll() is not None:
                break
            self.process.send_signal(signal.SIGTERM)
            self._wait(grace)
        if self.process.poll() is None:
            self.process.kill()
            self._wait(10.0)
        self._reader.join(10.0)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next event of that name; fails when the process ends first."""
        while True:
            told = self._inbox.get(timeout=PATIENCE)
            if told is None:
                raise AssertionError(f"ended before {event}: {self.events}\n{self.stderr}")
            self.events.append(told)
            if told["event"] == event:
                return told

    def finish(self) -> int:
        """Its exit code, once it ends."""
        return self.process.wait(PATIENCE)

    @property
    def stderr(self) -> str:
        """What it and its children have said."""
        return (self.folder / "stderr").read_text(errors="replace")

    @property
    def listeners(self) -> dict[str, str]:
        """Addresses by door."""
        ready = [event for event in self.events if "listeners" in event]
        listeners: dict[str, str] = ready[-1]["listeners"]
        return listeners

    @property
    def http(self) -> str:
        """The OpenAI door's base URL."""
        return self.listeners["http"]

    def status(self) -> dict[str, Any]:
        """GET /status."""
        answer: dict[str, Any] = httpx.get(f"{self.listeners['admin']}/status").json()
        return answer

    def ask(self, **fields: Any) -> httpx.Response:
        """One plain completion."""
        body = {"model": "default", "prompt": "The sky is", "max_tokens": 4, **fields}
        return httpx.post(f"{self.http}/v1/completions", json=body, timeout=PATIENCE)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._inbox.put(json.loads(line))
        self._inbox.put(None)

    def _wait(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"surgetank run still runs after {seconds} s\n")


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Look again and again until the condition holds."""
    give_up = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < give_up, f"never: {what}"
        pause.wait(0.02)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _clean_environment() -> dict[str, str]:
    """Without settings of the one who runs the tests."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SURGETANK_")}
