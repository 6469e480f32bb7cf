"""The Python stacks of a running process, also of one that is stuck: SIGUSR1 writes them to a file.

The handler is C code that needs no lock of the interpreter, so that it answers from within a step
that never ends. It shows files, lines and functions, and never a value.
"""

import faulthandler
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

POLL = 0.01  # seconds
QUIET_POLLS = 3  # without another byte, then the stacks are complete
PATIENCE = 2.0  # seconds for a process to answer


class StacksError(Exception):
    """The stacks cannot be had; says whose and why, in a sentence."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """One process's threads at one moment, innermost frame first, as faulthandler writes them."""

    process: str
    pid: int
    text: str


def stacks_path(socket: Path, process: str) -> Path:
    """Where a process writes its stacks: beside the socket that engine and sidecar share."""
    return socket.with_suffix(f".{process}.stacks")


class StackFile:
    """From entering to leaving the context, SIGUSR1 makes this process write its stacks."""

    def __init__(self, path: Path, process: str) -> None:
        self._path = path
        self._process = process

    def __enter__(self) -> Self:
        """Raises StacksError when the file cannot be made."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "a")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held while we live
            self._file.write(f"{self._process} {os.getpid()}\n")
            self._file.flush()
        except OSError as error:
            raise StacksError(f"stacks file {self._path}: {error.strerror or error}") from error
        faulthandler.register(signal.SIGUSR1, self._file, all_threads=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        faulthandler.unregister(signal.SIGUSR1)
        if self._path.exists() and os.path.samefile(self._path, self._file.fileno()):
            self._path.unlink()  # else it is another's by now
        self._file.close()


def read_stacks(path: Path, patience: float = PATIENCE) -> Stacks:
    """Ask the process behind the file, and wait for its answer. Blocks; raises StacksError."""
    try:
        with path.open("r+") as file:
            return _ask(path, file, patience)
    except FileNotFoundError as error:
        raise StacksError(f"no process offers its stacks at {path}") from error
    except OSError as error:
        raise StacksError(f"stacks file {path}: {error.strerror or error}") from error


def _ask(path: Path, file: TextIO, patience: float) -> Stacks:
    first = file.readline()
    name, _, pid = first.partition(" ")
    if not pid.strip().isdecimal():
        raise StacksError(f"{path} is not a stacks file")
    process, number = name, int(pid)
    if not _is_locked(file):
        raise StacksError(f"the {process} (process {number}) has ended")
    os.ftruncate(file.fileno(), len(first))  # what an earlier question left
    os.kill(number, signal.SIGUSR1)
    size, quiet = len(first), 0
    for _ in range(int(patience / POLL)):
        time.sleep(POLL)
        grown = os.fstat(file.fileno()).st_size
        quiet = quiet + 1 if grown == size else 0
        if grown > len(first) and quiet >= QUIET_POLLS:
            file.seek(len(first))
            return Stacks(process, number, file.read())
        size = grown
    raise StacksError(
        f"the {process} (process {number}) does not answer within {patience:g} s: it is stopped, "
        "or waits in the kernel"
    )


def _is_locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
