"""A `surgetank sidecar` in a process of its own, as a test sees it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

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
        if self.process.stdout is None:
            raise RuntimeError("no pipe to the sidecar's stdout")
        self.line = self.process.stdout.readline()

    @property
    def listeners(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.line)["listeners"]
        return found

    def ask(self, headers: dict[str, str] | None = None) -> httpx.Response:
        """One completion."""
        url = f"{self.listeners['http']}/v1/completions"
        return httpx.post(url, json=ASK, headers=headers, timeout=30)

    def look(self, path: str) -> Any:
        """A page of the admin API."""
        return httpx.get(f"{self.listeners['admin']}{path}", timeout=30).raise_for_status().json()

    def state(self) -> tuple[str, int]:
        """The state and how many requests are in the engine."""
        status = self.look("/status")
        return status["state"], status["requests"]["dispatched"]

    def until(self, state: tuple[str, int]) -> None:
        """Wait for that state."""
        until(lambda: self.state() == state, f"{state}")

    def finish(self) -> tuple[int, str]:
        """Exit code and stderr."""
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Look again and again until the condition holds."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError(f"never: {what}")
