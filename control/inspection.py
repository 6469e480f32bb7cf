"""A look inside the processes from beside them: step ring and stacks, by the files they keep."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from surgetank.control.stepviews import KvOut, StepsOut, kv_out, steps_out
from surgetank.engine.ring import RingError, read_ring, ring_path
from surgetank.engine.stacks import StacksError, read_stacks, stacks_path

PROCESSES = ("engine", "sidecar")


class ProcessStacks(BaseModel):
    """One process's threads, innermost frame first; or why they cannot be had."""

    process: str
    pid: int | None
    text: str
    error: str = Field(description="empty when the process answered")


class StacksOut(BaseModel):
    """Engine and sidecar."""

    processes: list[ProcessStacks]


class Inspection:
    """What the files beside one socket tell. Every method reads files: not for an event loop."""

    def __init__(self, socket: Path, foreign: Sequence[str] = ()) -> None:
        """`foreign`: the addresses of other makers' engines, which keep no such files."""
        self._socket = socket
        self._foreign = foreign

    def steps(self, last: int, slow: bool, file: Path | None = None) -> StepsOut:
        """The newest steps, or the newest slow ones. Raises RingError."""
        self._check_own(file, "what is known of steps: surgetank backends")
        ring = read_ring(file or ring_path(self._socket), None if slow else last)
        return steps_out(ring, last, slow)

    def kv(self, file: Path | None = None) -> KvOut:
        """The KV pool after the newest step. Raises RingError."""
        self._check_own(file, "what it tells of its KV pool: surgetank memory")
        return kv_out(read_ring(file or ring_path(self._socket)))

    def stacks(self) -> StacksOut:
        """Where engine and sidecar are now; waits for them, for two seconds at most each."""
        return StacksOut(processes=[self._stacks(process) for process in PROCESSES])

    def _check_own(self, file: Path | None, instead: str) -> None:
        """Files that an embedded engine left at the same socket are not this engine's."""
        if self._foreign and file is None:
            raise RingError(f"there is no step ring: {self._whose()}; {instead}")

    def _whose(self) -> str:
        places = ", ".join(self._foreign)
        if len(self._foreign) > 1:
            return f"the engines at {places} are other makers'"
        return f"the engine at {places} is another maker's"

    def _stacks(self, process: str) -> ProcessStacks:
        if self._foreign and process == "engine":
            error = f"{self._whose()}; their stacks are their own to show"
            return ProcessStacks(process=process, pid=None, text="", error=error)
        try:
            found = read_stacks(stacks_path(self._socket, process))
        except StacksError as error:
            return ProcessStacks(process=process, pid=None, text="", error=str(error))
        return ProcessStacks(process=process, pid=found.pid, text=found.text, error="")
