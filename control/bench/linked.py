"""Our engine as a sidecar meets it: a process of its own, one message a step over its socket."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.rival import Prompts, Sample
from surgetank.control.bench.workload import Tally, requests_of
from surgetank.engine.api import Commands, Hello, StepOutput
from surgetank.engine.wire import FrameReader, decode_from_engine, encode

START_TIMEOUT = 120.0  # seconds; the first load of a model from a cold disk is slow
READ_BYTES = 256 * 1024


class Linked:
    """Started with settings of the section `engine` and a child's environment."""

    def __init__(self, name: str, settings: Mapping[str, str], env: Mapping[str, str]) -> None:
        """Raises BenchError when it does not come up."""
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="surgetank-bench-")
        path = Path(self._folder.name) / "engine.sock"
        self._log = Path(self._folder.name) / "engine.log"
        command = [sys.executable, "-m", "surgetank", "engine"]
        for key, value in {**settings, "socket": str(path), "metrics_port": "0"}.items():
            command += ["--set", f"engine.{key}={value}"]
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._socket = self._connect(path)
        self._reader = FrameReader()
        self._arrived: deque[Hello | StepOutput] = deque()
        self._requests = 0
        hello = self._receive()
        if not isinstance(hello, Hello):
            self.close()
            raise BenchError(f"{name} did not greet")
        self.version = f"surgetank {hello.card.engine_version}"

    def ask(self, prompts: Prompts, output: int) -> Sample:
        """One message with all requests; then as many messages as it takes steps."""
        requests = requests_of(prompts, output, self._requests)
        self._requests += len(requests)
        tally = Tally(len(requests), time.perf_counter())
        self._socket.sendall(encode(Commands(submit=requests)))
        while not tally.done:
            message = self._receive()
            if isinstance(message, StepOutput):
                tally.step(message, time.perf_counter())
        return tally.sample()

    def close(self) -> None:
        """End it, by SIGTERM as its supervisor would."""
        self._socket.close()
        self._end()
        self._folder.cleanup()

    def _end(self) -> None:
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _connect(self, path: Path) -> socket.socket:
        until = time.monotonic() + START_TIMEOUT
        while time.monotonic() < until and self._child.poll() is None:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                peer.connect(str(path))
            except OSError:  # not listening yet: seen below, if it never does
                peer.close()
                time.sleep(0.05)
            else:
                return peer
        self._end()
        raise BenchError(f"{self.name} did not start: {self._log.read_text().strip()[-500:]}")

    def _receive(self) -> Hello | StepOutput:
        while not self._arrived:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise BenchError(f"{self.name} hung up: {self._log.read_text().strip()[-500:]}")
            self._arrived += map(decode_from_engine, self._reader.feed(data))
        return self._arrived.popleft()
