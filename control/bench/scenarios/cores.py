"""Which CPU cores the engine and its clients run on, so that one takes nothing from the other."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROC = Path("/proc")


def own() -> list[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def part(engine: int, allowed: Sequence[int]) -> str:
    """Give the engine's process all cores but the last; that one to this process, to its children
    and to the engine's siblings, of which the sidecar is one. Says what was done: nothing where
    there is one core, or the system is not Linux. OSError when it is not allowed."""
    if len(allowed) < 2 or not hasattr(os, "sched_setaffinity"):
        return "engine and clients share the cores"
    siblings = [pid for pid in _children(_parent(engine)) if pid != engine]
    _pin(engine, allowed[:-1])
    for pid in (os.getpid(), *_children(os.getpid()), *siblings):
        _pin(pid, allowed[-1:])
    return f"the engine has {len(allowed) - 1} of {len(allowed)} cores, the others the last"


def _parent(pid: int) -> int:
    """The second field after the name, which stands in parentheses and may hold anything."""
    after_name = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2]
    return int(after_name.split()[1])


def _children(pid: int) -> list[int]:
    text = (_PROC / str(pid) / "task" / str(pid) / "children").read_text()
    return [int(each) for each in text.split()]


def _pin(pid: int, to: Sequence[int]) -> None:
    for thread in _threads(pid):
        with contextlib.suppress(ProcessLookupError):  # it ended since it was listed
            os.sched_setaffinity(thread, to)


def _threads(pid: int) -> Iterator[int]:
    return (int(each.name) for each in (_PROC / str(pid) / "task").iterdir())
