"""The control loop: reads one snapshot, runs the policies, sets limits, writes the journal."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from surgetank.admission.gate import GateConfig
from surgetank.admission.limits import Limit, LimitChange, LimitError, Limits, Override
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.control.drain import Drain
from surgetank.control.journal import Journal
from surgetank.control.policies.policy import Policy, Wanted
from surgetank.engine.api import Settings
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.family import Counter

logger = logging.getLogger(__name__)
OURSELVES = "surgetank"


class ControlLoop:
    """One tick() per period. A policy that raises keeps its last limits, and nothing stops."""

    def __init__(
        self,
        *,
        clock: Clock,
        config: GateConfig,
        policies: Mapping[str, Policy],
        limits: Limits,
        journal: Journal,
        drain: Drain,
        read: Callable[[], DeskSnapshot],
        apply: Callable[[Settings], None],
        policy_errors: Counter,
    ) -> None:
        self._clock = clock
        self.config = config
        self._policies = dict(policies)
        self._limits = limits
        self._journal = journal
        self._drain = drain
        self._read = read
        self._apply = apply
        self._overrides: dict[Limit, Override] = {}  # whose they are, for their expiry
        self._policy_errors = policy_errors
        self._states: dict[str, Any] = {name: each.start for name, each in policies.items()}
        self._asked: dict[str, Wanted] = {name: {} for name in policies}  # by the last that ran
        self._added: list[str] = []
        self._bases: dict[Limit, float] = {}  # as they were before the first was added
        self._watchers: list[Callable[[DeskSnapshot], None]] = []
        self._settings: Settings | None = None  # as the engine was last told
        self.ticks = 0
        limits.on_change(self._on_limit_change)

    async def run(self, period: float) -> None:
        """Tick for ever, `period` seconds apart; cancel it to stop. A pass that fails is logged
        and counted: without the next ones overrides would not end, nor a brown-out."""
        while True:
            try:
                self.tick()
            except Exception:
                self._policy_errors.value += 1
                logger.exception("a pass of the control loop failed")
            await asyncio.sleep(period)

    @property
    def policies(self) -> tuple[str, ...]:
        """Those that set limits, in order; the later one's value holds."""
        return tuple(self._policies)

    def add(self, name: str, policy: Policy) -> None:
        """Let one more set limits, after the others."""
        if not self._added:
            self._bases = {view.name: view.base for view in self._limits.snapshot()}
        self._added.append(name)
        self._states[name], self._asked[name] = policy.start, {}
        self._policies[name] = policy

    def remove(self, name: str) -> None:
        """End what add() began: limits that only this policy set are as before any was added."""
        self._added.remove(name)
        del self._policies[name], self._states[name]
        asked = self._asked.pop(name)
        others = {limit for each in self._asked.values() for limit in each}
        for limit in asked:
            if limit not in others:
                self._set(limit, self._limits.possible(limit, self._bases[limit]), name)

    def on_tick(self, watcher: Callable[[DeskSnapshot], None]) -> None:
        """Tell `watcher` of each pass, after the policies; what it raises is counted and logged."""
        self._watchers.append(watcher)

    def tick(self) -> None:
        """One pass; everything in it sees the same snapshot."""
        self.ticks += 1
        now = self._clock.monotonic()
        self._limits.expire(now)
        self._drain.expire(now)
        snapshot = self._read()
        self._run_policies(snapshot)
        for watcher in self._watchers:
            self._tell(watcher, snapshot)
        if snapshot.backend_up:
            self._tell_engine()

    def _run_policies(self, snapshot: DeskSnapshot) -> None:
        """Ask every policy; then set each limit once, to what the last that named it wants."""
        wanted: dict[Limit, tuple[float, str]] = {}
        for name, policy in self._policies.items():
            try:
                state, asked = policy.step(self._states[name], self.config, snapshot)
                self._states[name], self._asked[name] = state, dict(asked)
            except Exception:
                self._policy_errors.value += 1
                logger.exception("policy %s failed; limits stay as they are", name)
            wanted.update((limit, (value, name)) for limit, value in self._asked[name].items())
        for view in snapshot.limits:
            if view.name in wanted:
                value, name = wanted[view.name]
                possible = min(float(value), view.maximum)
                if view.base not in (value, possible):
                    self._set(view.name, possible, name)

    def _tell(self, watcher: Callable[[DeskSnapshot], None], snapshot: DeskSnapshot) -> None:
        try:
            watcher(snapshot)
        except Exception:  # the loop goes on
            self._policy_errors.value += 1
            logger.exception("what follows the control loop failed")

    def _set(self, limit: Limit, value: float, policy: str) -> None:
        try:
            self._limits.set_base(limit, value, f"policy:{policy}")
        except LimitError:
            self._policy_errors.value += 1
            logger.exception("policy %s wants what %s cannot be", policy, limit)

    def _tell_engine(self) -> None:
        """The engine's own budgets follow their limits."""
        settings = Settings(
            max_num_seqs=int(self._limits.get(Limit.MAX_NUM_SEQS)),
            max_batch_tokens=int(self._limits.get(Limit.MAX_BATCH_TOKENS)),
            prefill_share=self._limits.get(Limit.PREFILL_SHARE),
            kv_watermark=self._limits.get(Limit.KV_WATERMARK),
            tpot_target=self._limits.get(Limit.TPOT_TARGET),
        )
        if settings != self._settings:
            self._apply(settings)
            self._settings = settings

    def _on_limit_change(self, change: LimitChange) -> None:
        """Operators' changes are journaled where they are made, with who and why; these here."""
        if change.cause == "operator":
            self._overrides = {
                view.name: view.override for view in self._limits.snapshot() if view.override
            }
        elif change.cause == "expiry":
            override = self._overrides.pop(change.name)
            self._note(change, override.who, f"expired: {override.why}")
        elif change.before != change.after:
            self._note(change, OURSELVES, change.cause)

    def _note(self, change: LimitChange, who: str, why: str) -> None:
        self._journal.write(
            who=who,
            why=why,
            what=change.name,
            before=change.before,
            after=change.after,
            cause=change.cause.partition(":")[0],
        )
