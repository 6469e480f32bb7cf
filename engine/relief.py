"""Out of memory as an event: which memory it was, and what was done about it, step by step."""

import logging

import torch

from surgetank.engine.kv.manager import KVManager
from surgetank.engine.plan import Plan
from surgetank.engine.roster import Roster
from surgetank.engine.runner import Runner
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import OomAction, OomSource

logger = logging.getLogger(__name__)
# What torch says where it raises a plain RuntimeError: its CPU allocator, cuBLAS, and drivers.
_SIGNS = ("can't allocate memory", "not enough memory", "ALLOC_FAILED", "out of memory")


def oom_source(error: Exception) -> OomSource | None:
    """The memory whose end `error` tells of; None when it tells of something else."""
    if isinstance(error, MemoryError):
        return OomSource.HOST
    if isinstance(error, torch.OutOfMemoryError):
        return OomSource.ACTIVATION
    told = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)
    return OomSource.ACTIVATION if told else None


class Relief:
    """Frees what can be freed, then makes the step smaller, then tells who cannot run.

    `events` are those since the last step record, which takes them.
    """

    def __init__(self, runner: Runner, roster: Roster) -> None:
        self.events: list[tuple[OomSource, OomAction]] = []
        self._runner = runner
        self._roster = roster

    def make_smaller(self, plan: Plan, source: OomSource) -> list[Sequence]:
        """After `plan` ran out of memory: it may be tried again, as it is or cut down, without
        those that are returned, for whom there is no memory at all."""
        if self._free(source):
            self.note(source, OomAction.EVICTED_CACHE)
        elif plan.tokens > 1:
            plan.keep(plan.tokens // 2, [])
            self.note(source, OomAction.SHRANK_STEP)
        else:
            hopeless = [sequence for sequence, _ in plan.chunks]
            plan.keep(0, [])
            return hopeless
        return []

    def _free(self, source: OomSource) -> bool:
        """The swap pool where the host's memory ran out, which is the device's on a CPU."""
        if source is not OomSource.HOST and self._runner.device.type != "cpu":
            return self._runner.release_reserve()
        if not self._runner.release_swap_pool():
            return False
        self._roster.forget_swapped()
        return True

    def find_blocks(self, kv: KVManager) -> bool:
        """When not one sequence got its block: whether there is something to try again with."""
        if kv.pool.drop_cached():
            self.note(OomSource.KV, OomAction.EVICTED_CACHE)
            return True
        return False

    def note(self, source: OomSource, action: OomAction) -> None:
        """Count it, and say so."""
        logger.warning("out of memory (%s): %s", source, action)
        self.events.append((source, action))

    def take_events(self) -> list[tuple[OomSource, OomAction]]:
        """All since the last call."""
        events, self.events = self.events, []
        return events
