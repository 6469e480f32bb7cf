"""One sidecar in its fleet: follows the common overrides and policy, and leads when it is its turn.

Overrides reach every sidecar within a period, last as long everywhere whatever the clocks say, and
stay in force where Redis cannot be reached. When Redis has lost its memory, those who remember an
override tell it again.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from surgetank.admission.leases.link import LinkError
from surgetank.admission.limits import Limit, LimitError, Limits, Override, limit_named
from surgetank.control.fleet.store import Entry, Seen, Store
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock

logger = logging.getLogger(__name__)
POLICY = "policy"
_OVERRIDE = "override:"
_DRIFT = 0.95  # of its lease a leader uses: clocks may run a little differently
_CLOSE = 1.0  # seconds; ends of one override that differ by less are the same


class FleetConfig(BaseModel):
    """How often sidecars look, and how long a leader leads without renewing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    period: float = Field(default=0.5, ge=0.05, le=10, description="Seconds between two looks.")
    lease: float = Field(
        default=3.0, ge=0.1, le=60, description="Seconds after which a silent leader is replaced."
    )


class Fleet:
    """Belongs to the event loop's thread. `use_policy` is told the name of the common
    policy, and must not raise."""

    def __init__(
        self,
        config: FleetConfig,
        *,
        store: Store,
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        journal: Journal,
        use_policy: Callable[[str], None],
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._rng = rng
        self._limits = limits
        self._journal = journal
        self._use_policy = use_policy
        self._seen = Seen("", "", "", None)
        self._ours: dict[Limit, Override] = {}  # as the fleet has set them here
        self._policy: Entry | None = None
        self._leads_until = 0.0
        self._reached = True
        self.name = f"{rng.getrandbits(64):016x}"

    @property
    def leads(self) -> bool:
        """Whether this sidecar decides for all now; false at once when its lease is over."""
        return self._clock.monotonic() < self._leads_until

    async def run(self) -> None:
        """Look for ever; cancel it to stop."""
        while True:
            await self.look()
            await asyncio.sleep(self._config.period * self._rng.uniform(0.9, 1.1))

    async def look(self) -> bool:
        """Look once and follow; False when Redis did not answer."""
        asked_at = self._clock.monotonic()
        lease, before, told = self._config.lease, self._seen, False
        try:
            seen = await self._store.look(self.name, lease=lease, state=before.state)
            if before.born and seen.born != before.born:
                told = await self._remind(seen)
        except LinkError as error:
            if self._reached:
                logger.warning("fleet: no answer from redis (%s)", error)
            self._reached = False
            return False
        self._reached = True
        self._seen = seen
        self._leads_until = asked_at + _DRIFT * lease if seen.leader == self.name else 0.0
        if seen.entries is not None and not told:  # else the next look brings what was told
            self._follow(seen.entries)
        return True

    async def override(self, name: Limit, value: float, *, ttl: float, who: str, why: str) -> None:
        """Tell all sidecars of an operator's value for `ttl` seconds. Raises LinkError."""
        await self._store.write(f"{_OVERRIDE}{name}", Entry(value, who, why), lasts=ttl)

    async def clear(self, name: Limit) -> None:
        """Tell all that the override is over. Raises LinkError."""
        await self._store.write(f"{_OVERRIDE}{name}", None)

    async def promote(self, policy: str, *, who: str, why: str) -> None:
        """Tell all which policy is in force from now on; an operator's act. Raises LinkError."""
        await self._store.write(POLICY, Entry(policy, who, why))

    async def decide(self, policy: str, *, why: str) -> bool:
        """The leader's own decision on the policy; False when this sidecar does not lead (any
        more), and nothing was done. Raises LinkError."""
        entry = Entry(policy, f"leader {self.name}", why)
        return self.leads and await self._store.write(POLICY, entry, term=self._seen.term)

    async def close(self) -> None:
        """Leave the lead to another."""
        self._leads_until = 0.0
        try:
            await self._store.resign(self.name)
        except LinkError as error:
            logger.warning("fleet: left without saying so (%s)", error)
        await self._store.close()

    async def _remind(self, seen: Seen) -> bool:
        """Redis lost its memory: say again what it does not know; True when that was something."""
        told = False
        now = self._clock.monotonic()
        known = seen.entries or {}
        for limit, held in self._ours.items():
            name, left = f"{_OVERRIDE}{limit}", held.until - now
            if name not in known and left > 0:
                entry = Entry(held.value, held.who, held.why)
                await self._store.write(name, entry, lasts=left, only_new=True)
                told = True
        if self._policy is not None and POLICY not in known:
            await self._store.write(POLICY, self._policy, only_new=True)
            told = True
        return told

    def _follow(self, entries: dict[str, tuple[Entry, float | None]]) -> None:
        now = self._clock.monotonic()
        wanted = {}
        for name, (entry, left) in entries.items():
            if name == POLICY:
                self._follow_policy(entry)
            elif name.startswith(_OVERRIDE) and left is not None:
                wanted[name.removeprefix(_OVERRIDE)] = (entry, now + left)
        for name, (entry, until) in wanted.items():
            try:
                self._set(
                    limit_named(name), Override(float(entry.value), until, entry.who, entry.why)
                )
            except LimitError as error:
                logger.warning("fleet: an override cannot hold here: %s", error)
        for limit in [limit for limit in self._ours if limit not in wanted]:
            self._clear(limit)

    def _set(self, limit: Limit, override: Override) -> None:
        held = self._held(limit)
        self._ours[limit] = override
        if held is not None and _same(held, override):
            return
        before = self._limits.get(limit)
        self._limits.override(
            limit, override.value, until=override.until, who=override.who, why=override.why
        )
        ttl = override.until - self._clock.monotonic()
        self._note(limit, override.who, override.why, before, ttl)

    def _clear(self, limit: Limit) -> None:
        ours, held = self._ours.pop(limit), self._held(limit)
        if held is not None and _same(held, ours):
            before = self._limits.get(limit)
            self._limits.clear(limit)
            self._note(limit, ours.who, f"cleared: {ours.why}", before, None)

    def _follow_policy(self, entry: Entry) -> None:
        if entry == self._policy:
            return
        self._policy = entry
        self._use_policy(str(entry.value))

    def _held(self, limit: Limit) -> Override | None:
        return next(view.override for view in self._limits.snapshot() if view.name is limit)

    def _note(self, limit: Limit, who: str, why: str, before: float, ttl: float | None) -> None:
        after = self._limits.get(limit)
        self._journal.write(
            who=who, why=why, what=limit, before=before, after=after, ttl=ttl, cause="fleet"
        )


def _same(one: Override, other: Override) -> bool:
    return (one.value, one.who, one.why) == (other.value, other.who, other.why) and abs(
        one.until - other.until
    ) < _CLOSE
