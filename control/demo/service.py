"""A product of the demo's own: `surgetank run` as a child process on free ports."""

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

START_TIMEOUT = 120.0  # seconds until ready; the first load of a model from a cold disk is slow
STOP_TIMEOUT = 60.0


class ServiceError(Exception):
    """The product did not start, or died under the demo; the message holds its last words."""


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Service:
    """Handle on a running product: where it listens, and what its admin API says."""

    def __init__(self, http_port: int, admin_port: int) -> None:
        self.openai_url = f"http://127.0.0.1:{http_port}/v1"
        self.ready_url = f"http://127.0.0.1:{http_port}/health/ready"
        self._admin = f"http://127.0.0.1:{admin_port}"

    def status(self) -> dict[str, Any]:
        """GET /status of the admin API."""
        answer = httpx.get(f"{self._admin}/status", timeout=10)
        answer.raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def engine(self) -> dict[str, Any]:
        """The engine's part of /status; raises ServiceError while there is none."""
        engine: dict[str, Any] | None = self.status()["engine"]
        if engine is None:
            raise ServiceError("the engine is not connected")
        return engine

    def set_limit(self, name: str, value: float, why: str) -> None:
        """What `surgetank limits set NAME VALUE --ttl 10m --why WHY` does."""
        body = {"value": value, "ttl": 600, "who": "demo", "why": why}
        httpx.put(f"{self._admin}/limits/{name}", json=body, timeout=10).raise_for_status()


def _last_words(log: Path) -> str:
    return log.read_text()[-2000:].strip()


async def _is_ready(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == httpx.codes.OK
    except httpx.TransportError:  # nobody listens yet
        return False


async def _until_ready(service: Service, process: asyncio.subprocess.Process, log: Path) -> None:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + START_TIMEOUT
    async with httpx.AsyncClient() as client:
        while loop.time() < give_up:
            if process.returncode is not None:
                raise ServiceError(_last_words(log) or f"exit code {process.returncode}")
            if await _is_ready(client, service.ready_url):
                return
            await asyncio.sleep(0.2)
    raise ServiceError(f"not ready after {START_TIMEOUT:.0f} s: {_last_words(log)}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
    except TimeoutError:
        process.kill()
        await process.wait()


@asynccontextmanager
async def running(settings: Sequence[str]) -> AsyncIterator[Service]:
    """A product with these `section.key=value` settings, ready; stopped on leaving.

    Raises ServiceError with the product's own words when it does not come up.
    """
    http, grpc, admin, metrics = free_ports(4)
    with tempfile.TemporaryDirectory(prefix="surgetank-demo-") as folder:
        log = Path(folder) / "log"
        ports = [f"http.port={http}", f"grpc.port={grpc}", f"admin.port={admin}"]
        paths = [f"engine.socket={folder}/engine.sock", f"control.journal={folder}/journal.jsonl"]
        options = [*ports, f"engine.metrics_port={metrics}", *paths, *settings]
        with log.open("w") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "surgetank", "run"),
                *(part for option in options for part in ("--set", option)),
                stdout=output,
                stderr=output,
                env=dict(os.environ),
                start_new_session=True,
            )
        service = Service(http, admin)
        try:
            await _until_ready(service, process, log)
            yield service
        finally:
            await _stop(process)
