"""The real proxies, started on the example configurations with other ports; and who asks them."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic
from openai import OpenAI
from tests.control.sidecar_process import Sidecar, until
from tests.e2e.behind.stub_engine import WAIT, StubEngine

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
ENGINE, PROXY, ENVOY, ADMIT = 8000, 8410, 8405, 8406  # the ports in the examples
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def find(name: str) -> str:
    """The program; the test is skipped where there is none."""
    ours = [str(ROOT / each / "bin") for each in (".venv-envoy", ".venv-smg", ".venv-proxies")]
    places = [*ours, os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]
    path = shutil.which(name, path=os.pathsep.join(places))
    if path is None:
        how = {"envoy": "make envoy", "smg": "make smg", "nginx": "apt install nginx"}[name]
        pytest.skip(f"{name} is not installed; {how} brings it")
    return path


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Proxied:
    """Engine, sidecar and proxy, and who asks through the proxy."""

    engine: StubEngine
    sidecar: Sidecar
    port: int
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, retries: int = 0) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=retries, timeout=WAIT)

    def ask(self, **headers: str) -> Any:
        """One chat completion of the openai client's."""
        with self.client() as client:
            return client.chat.completions.create(**ASK, extra_headers=headers)

    def refused(self) -> anthropic.APIStatusError:
        """What the anthropic client raises for one message."""
        with (
            Anthropic(base_url=self.url, api_key="k", max_retries=0, timeout=WAIT) as client,
            pytest.raises(anthropic.APIStatusError) as caught,
        ):
            client.messages.create(**ASK, max_tokens=4)
        return caught.value

    def later(self) -> "Future[Any]":
        """The same, meanwhile."""
        return self.pool.submit(self.ask)

    def hold(self, dispatched: int, queued: int) -> None:
        """Wait until so many are in the engine and so many wait at the gate."""

        def reached() -> bool:
            requests = self.sidecar.look("/status")["requests"]
            return (requests["dispatched"], requests["queued"]) == (dispatched, queued)

        until(reached, f"{dispatched} in the engine, {queued} queued", WAIT)

    def outcomes(self) -> dict[str, float]:
        """Ended requests by outcome, as /metrics counts them."""
        page = httpx.get(f"{self.sidecar.listeners['http']}/metrics").text
        found = re.findall(r'^surgetank_requests_total\{.*?outcome="(\w+)".*?\} (\S+)', page, re.M)
        counts: dict[str, float] = {}
        for outcome, count in found:
            if float(count):
                counts[outcome] = counts.get(outcome, 0.0) + float(count)
        return counts


@contextmanager
def proxied(
    engine: StubEngine,
    folder: Path,
    example: str,
    command: Callable[[str, Path], list[str]],
    *settings: str,
    change: tuple[str, str] = ("", ""),
) -> Iterator[Proxied]:
    """A sidecar of one slot and a queue of one, and the proxy before it; `change`: of the example's
    text, from what to what."""
    program = find(example.partition("/")[0])
    sidecar = Sidecar(
        folder,
        f"backends.0.url={engine.url}",
        "gate.in_flight_seqs=1",
        "gate.queue_requests=1",
        "envoy.port=0",
        "admit.port=0",
        *settings,
    )
    process: subprocess.Popen[bytes] | None = None
    proxy: Proxied | None = None
    try:
        until(lambda: sidecar.look("/status")["state"] == "ready", "the engine is found")
        ports = {
            ENGINE: engine.port,
            PROXY: free_port(),
            ENVOY: int(sidecar.listeners["envoy"].rpartition(":")[2]),
            ADMIT: int(sidecar.listeners["admit"].rpartition(":")[2]),
        }
        text = (EXAMPLES / example).read_text().replace(*change)
        for old, new in ports.items():
            text = re.sub(rf"(port_value: |127\.0\.0\.1:){old}\b", rf"\g<1>{new}", text)
        config = folder / Path(example).name
        config.write_text(text)
        with (folder / "proxy.log").open("w") as log:
            process = subprocess.Popen(command(program, config), stdout=log, stderr=log)
        proxy = Proxied(engine, sidecar, ports[PROXY])
        until(lambda: _listens(ports[PROXY], process), f"{program} listens")
        yield proxy
    finally:
        engine.free.set()
        if proxy is not None:
            proxy.pool.shutdown(wait=True)
        if process is not None:
            process.terminate()
            process.wait(WAIT)
        sidecar.kill()


def _listens(port: int, process: "subprocess.Popen[bytes]") -> bool:
    if process.poll() is not None:
        raise AssertionError(f"the proxy ended with {process.returncode}; see proxy.log")
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def leave_stream(url: str, **headers: str) -> None:
    """Ask for a stream, read its first event, and go away."""
    with (
        httpx.Client(timeout=WAIT) as client,
        client.stream(
            "POST", f"{url}/v1/chat/completions", json={**ASK, "stream": True}, headers=headers
        ) as answer,
    ):
        next(answer.iter_lines())
