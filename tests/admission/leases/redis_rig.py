"""A real redis-server of the test's own, a faulty line to it, and sidecars that share it."""

import asyncio
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from surgetank.admission.leases.config import LeasesConfig, TenantQuota
from surgetank.admission.leases.link import Link
from surgetank.admission.leases.quotas import Quotas
from surgetank.admission.leases.renewer import Renewer
from surgetank.telemetry.clock import Clock

INSTALL = "redis-server is not installed; install it with: apt-get install redis-server"


class RedisServer:
    """redis-server on a unix socket in a folder of its own; it keeps nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip(INSTALL)
        command = [program, "--port", "0", "--unixsocket", str(self.path), "--save", ""]
        self._process = subprocess.Popen(
            command, cwd=self.path.parent, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        until = time.monotonic() + 20
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError(f"redis-server did not start: {command}")

    def freeze(self) -> None:
        """Stop it where it stands; its connections stay, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise RuntimeError("redis-server does not run")
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once; what it knew is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None
            self.path.unlink(missing_ok=True)

    def command(self, *words: str) -> bytes:
        """What it answers to one command, by a connection of its own."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10)
            line.connect(str(self.path))
            line.sendall((" ".join(words) + "\r\n").encode())
            return line.recv(65536)

    def calls(self, command: str) -> int:
        """How often that command was called since the start."""
        found = re.search(rf"cmdstat_{command}:calls=(\d+)", self.command("INFO", "all").decode())
        return int(found[1]) if found else 0

    def _answers(self) -> bool:
        try:
            return self.command("PING") == b"+PONG\r\n"
        except (FileNotFoundError, ConnectionRefusedError):
            return False


class Line:
    """A TCP proxy to the server that can be frozen, cut, or lose the answers."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.loses_answers = False
        self.delay = 0.0
        self.url = ""

    async def start(self) -> None:
        """Listen on any free port."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def freeze(self) -> None:
        """Let nothing through, in either direction; connections stay."""
        self._open.clear()

    def thaw(self) -> None:
        """Let everything through that has come in meanwhile."""
        self._open.set()

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.close()

    async def close(self) -> None:
        """Stop listening, and leave nothing behind."""
        if self._listener is not None:
            self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_unix_connection(str(self._server.path))
        except OSError:
            writer.close()  # the server is down: so is the line
            return
        for one in (writer, there[1]):
            self._writers.add(one)
        for task in (self._pump(reader, there[1], False), self._pump(there[0], writer, True)):
            self._tasks.add(asyncio.create_task(task))

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool
    ) -> None:
        try:
            while data := await source.read(65536):
                await asyncio.sleep(self.delay)
                await self._open.wait()
                if not (answers and self.loses_answers):
                    sink.write(data)
        except ConnectionError:
            sink.close()  # whoever reads the other side sees it
        finally:
            sink.close()


QUOTA = TenantQuota(tokens_per_minute=6000, requests_per_minute=60_000, concurrency=8)


def settings(url: str, **changes: object) -> LeasesConfig:
    """Three sidecars; a tenant has 100 tokens/s, 1,000 at once, and 8 slots."""
    fields = {"sidecars": 3, "timeout": 0.5, "default": QUOTA, "retry_floor": 1.0} | changes
    return LeasesConfig.model_validate({"url": SecretStr(url), **fields})


class Side:
    """One sidecar's quotas and what renews them."""

    def __init__(self, config: LeasesConfig, clock: Clock, seed: int = 0) -> None:
        if config.url is None:
            raise ValueError("url: null; allowed: an address")
        self.quotas = Quotas(config, clock)
        self.link = Link(config.url.get_secret_value(), config.timeout)
        self.renewer = Renewer(self.quotas, config, self.link, clock, random.Random(seed))

    async def renew(self, times: int = 1) -> None:
        """Ask Redis so often."""
        for _ in range(times):
            await self.renewer.renew()

    def share(self, name: str) -> float:
        """What this sidecar holds of a limit; 0 while it has no pool of it."""
        return dict(self.quotas.pools())[name].share if name in dict(self.quotas.pools()) else 0.0
