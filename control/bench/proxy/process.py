"""A proxy's process and its children: started on a core of their own, their CPU time read."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.proxy.client import Pool
from surgetank.control.bench.proxy.peers import Plan

_UP_WITHIN = 90.0  # seconds; the slowest of them imports for half a minute
_DOWN_WITHIN = 10.0


class Process:
    """One proxy, or the stub. `started()` it, and end() it."""

    def __init__(self, name: str, port: int, child: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.port = port
        self._child = child
        self._log = log

    def cpu(self) -> float:
        """Seconds of CPU time that it and its children have had."""
        return sum(_cpu(pid) for pid in self._family())

    def resident(self) -> int:
        """Bytes of memory that it and its children have; what two share counts twice."""
        return sum(_resident(pid) for pid in self._family())

    async def ready(self) -> None:
        """Until it serves a request. Raises BenchError when it ends, or does not."""
        give_up = time.monotonic() + _UP_WITHIN
        while True:
            pool = Pool(self.port)
            try:
                await pool.ask(2, 1000)
                return
            except (OSError, BenchError) as error:
                if self._child.poll() is not None or time.monotonic() > give_up:
                    raise BenchError(f"{error} ({self._words()})") from None
            finally:
                pool.close()
            await asyncio.sleep(0.1)

    def end(self) -> None:
        """It and its children."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):  # all of them have ended by themselves
                os.killpg(self._child.pid, number)
            try:
                self._child.wait(_DOWN_WITHIN)
                return
            except subprocess.TimeoutExpired:
                continue

    def _family(self) -> Iterator[int]:
        waiting = [self._child.pid]
        while waiting:
            yield (pid := waiting.pop())
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(FileNotFoundError):  # a thread that has just ended
                    waiting += map(int, task.read_text().split())

    def _words(self) -> str:
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it said nothing'}; all of it: {self._log}"


def start(plan: Plan, port: int, folder: Path, cores: Sequence[int]) -> Process:
    """On these cores. It may be long until it is ready()."""
    log = folder / f"{plan.name}.log"
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with log.open("wb") as file, on(cores):
        child = subprocess.Popen(
            plan.command,
            env={**env, **plan.env},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    return Process(plan.name, port, child, log)


@contextmanager
def stub(cores: Sequence[int]) -> Iterator[int]:
    """The engine stub's port, while it runs."""
    command = (sys.executable, "-m", "surgetank.control.bench.proxy.stub")
    with on(cores):
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        line = child.stdout.readline() if child.stdout else b""
        if not line:
            raise BenchError("the engine stub did not start")
        yield int(line)
    finally:
        child.communicate()


@contextmanager
def on(cores: Sequence[int]) -> Iterator[None]:
    """What is started meanwhile has these cores; nothing where the system knows no such thing."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except FileNotFoundError:
        return 0  # it ended between the two looks
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _cpu(pid: int) -> float:
    """User and system time of a whole process, ended threads included, to the nanosecond: the clock
    that clock_getcpuclockid(3) would name."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0  # it ended between the two looks
