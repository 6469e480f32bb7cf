"""One sidecar in its fleet: follows the common overrides and policy, and leads when it is its turn.

Overrides reach every sidecar within a period, last as long everywhere whatever the clocks say, and
stay in force where Redis cannot be reached. What is to be told waits until it can be. When Redis
has lost its memory, those who remember an override tell it again.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from surgetank.admission.leases.link import LinkError
from surgetank.admission.limits import Limit, Limits, Override, limit_named
from surgetank.control.drain import Drain, Hold
from surgetank.control.fleet.config import FleetConfig
from surgetank.control.fleet.store import Entry, Seen, Store
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.family import Counter

logger = logging.getLogger(__name__)
POLICY = "policy"
DRAINING = "draining"
_OVERRIDE = "override:"
_DRIFT = 0.95  # of its lease a leader uses: clocks may run a little differently
_CLOSE = 1.0  # seconds; ends of one override that differ by less are the same
_GAP = 0.02  # seconds between two looks, however much is to be told


class Policies(Protocol):
    """This sidecar's own policies, as its fleet directs them."""

    def use(self, name: str, *, who: str, why: str, ttl: float | None) -> None:
        """Promote it, for so many seconds; "": what is configured. What cannot be is logged."""

    def fallen(self) -> str | None:
        """Why the policy that the fleet promoted was rolled back here by itself; None: it was
        not."""


class Fleet:
    """Belongs to the event loop's thread."""

    any = True  # there are others to tell

    def __init__(
        self,
        config: FleetConfig,
        *,
        store: Store,
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        journal: Journal,
        drain: Drain,
        policies: Policies,
        host: str = "sidecar",
        failures: Counter | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._rng = rng
        self._limits = limits
        self._journal = journal
        self._drain = drain
        self._policies = policies
        self.on_told: Callable[[], None] = lambda: None  # called when life_of() may say other
        self._failures = failures or Counter()  # looks that Redis did not answer in time
        self._seen = Seen("", "", "", None)
        self._ours: dict[Limit, Override] = {}  # as the fleet has set them here
        self._drained: tuple[Entry, float | None] | None = None  # by the fleet, and until when
        self._policy: tuple[Entry, float | None] | None = None  # by the fleet, and until when
        self._untold: dict[str, tuple[Entry | None, float | None]] = {}  # and until when it holds
        self._hurry = asyncio.Event()
        self._leads_until = 0.0
        self.reached = True  # by the last look
        self.name = f"{host}-{rng.getrandbits(32):08x}"  # new at every start

    @property
    def leads(self) -> bool:
        """Whether this sidecar decides for all now; false at once when its lease is over."""
        return self._clock.monotonic() < self._leads_until

    @property
    def leader(self) -> str:
        """Who led at the last look that Redis answered; "" before the first."""
        return self._seen.leader

    @property
    def untold(self) -> int:
        """Acts that the others have not been told of yet."""
        return len(self._untold)

    async def run(self) -> None:
        """Look for ever; cancel it to stop."""
        while True:
            reached = await self.look() and await self.lead()
            pause = self._config.period * self._rng.uniform(0.9, 1.1)
            await asyncio.sleep(_GAP if reached else pause)
            with contextlib.suppress(TimeoutError):  # there was nothing to tell meanwhile
                async with asyncio.timeout(pause):
                    await self._hurry.wait()

    async def look(self) -> bool:
        """Tell, look once and follow; False when Redis did not answer."""
        self._hurry.clear()
        asked_at = self._clock.monotonic()
        lease, before, told = self._config.lease, self._seen, False
        try:
            await self._tell()
            seen = await self._store.look(self.name, lease=lease, state=before.state)
            if before.born and seen.born != before.born:
                told = await self._remind(seen)
        except LinkError as error:
            self._failures.value += 1
            if self.reached:
                logger.warning("fleet: no answer from redis (%s)", error)
            self.reached = False
            return False
        self.reached = True
        self._seen = seen
        self._leads_until = asked_at + _DRIFT * lease if seen.leader == self.name else 0.0
        if seen.entries is not None and not told:  # else the next look brings what was told
            self._follow(seen.entries)
        return True

    async def lead(self) -> bool:
        """The leader's part: a policy that was rolled back by itself at the leader is rolled back
        everywhere. False when Redis did not answer."""
        why = self._policies.fallen()
        if why is None or self._policy is None or not self.leads:
            return True
        try:
            await self.decide("", why=why, ends=str(self._policy[0].value))
        except LinkError as error:
            self._failures.value += 1
            logger.warning("fleet: what the leader decided was not told (%s)", error)
            return False
        return True

    def tell_override(self, limit: Limit, override: Override | None) -> None:
        """Tell all sidecars of an operator's value, or that there is none any more."""
        name = f"{_OVERRIDE}{limit}"
        if override is None:
            self._say(name, None, None)
        else:
            entry = Entry(override.value, override.who, override.why, self.name)
            self._say(name, entry, override.until)

    def tell_drain(self, hold: Hold | None) -> None:
        """Tell all to drain, or to take requests again."""
        entry = None if hold is None else Entry(1.0, hold.who, hold.why, self.name)
        self._say(DRAINING, entry, None if hold is None else hold.until)

    def life_of(self, limit: Limit, override: Override) -> str:
        """The life of Redis in which all were told of it; "": they do not know it yet."""
        known = self._ours.get(limit)
        if known is None or f"{_OVERRIDE}{limit}" in self._untold:
            return ""
        return self._seen.born if _same(known, override) else ""

    def adopt(self, lives: Mapping[Limit, str]) -> None:
        """Before the first look: overrides that hold here from before the start. Those that were
        told in a life of Redis, by `lives`, are the fleet's to take back while that life lasts;
        the others are told now."""
        for view in self._limits.snapshot():
            if view.override is not None and (life := lives.get(view.name, "")):
                self._ours[view.name] = view.override
                self._seen = Seen(f"{life}-", "", "", None)
            elif view.override is not None:
                self.tell_override(view.name, view.override)
        self.on_told()

    def tell_policy(self, name: str, *, until: float | None, who: str, why: str) -> None:
        """Tell all which policy they promote."""
        self._say(POLICY, Entry(name, who, why, self.name), until)

    def tell_rollback(self, name: str, *, who: str, why: str) -> None:
        """Tell all who promote it to go back to what is configured; another stays promoted."""
        newer, _ = self._untold.get(POLICY, (None, None))
        known = "" if self._policy is None else self._policy[0].value
        if newer is None or newer.value == name or (newer.value == "" and known == name):
            self._say(POLICY, Entry("", who, why, self.name, ends=name), None)

    async def decide(self, policy: str, *, why: str, ends: str = "") -> bool:
        """The leader's own decision on the policy, in the place of `ends` alone where that is
        given; False when this sidecar does not lead (any more), and nothing was done. Raises
        LinkError."""
        entry = Entry(policy, f"leader {self.name}", why, self.name, ends)
        return self.leads and await self._store.write(POLICY, entry, term=self._seen.term)

    async def close(self) -> None:
        """Leave the lead to another."""
        self._leads_until = 0.0
        try:
            await self._store.resign(self.name)
        except LinkError as error:
            logger.warning("fleet: left without saying so (%s)", error)
        await self._store.close()

    def _say(self, name: str, entry: Entry | None, until: float | None) -> None:
        self._untold.pop(name, None)  # the newest goes last
        self._untold[name] = (entry, until)
        self._hurry.set()

    async def _tell(self) -> None:
        """What waits to be told, in order; what fails waits on. Raises LinkError."""
        for name, said in list(self._untold.items()):
            entry, until = said
            lasts = None if until is None else until - self._clock.monotonic()
            if lasts is None or lasts > 0:
                await self._store.write(name, entry, lasts=lasts)
            if self._untold.get(name) is said:
                del self._untold[name]

    async def _remind(self, seen: Seen) -> bool:
        """Redis lost its memory: say again what it does not know; True when that was something."""
        now = self._clock.monotonic()
        known = seen.entries or {}
        again = {
            f"{_OVERRIDE}{limit}": (Entry(held.value, held.who, held.why, self.name), held.until)
            for limit, held in self._ours.items()
        }
        memory: dict[str, tuple[Entry, float | None]] = {**again}
        if self._drained is not None:
            memory[DRAINING] = self._drained
        if self._policy is not None:
            memory[POLICY] = self._policy
        told = False
        for name, (entry, until) in memory.items():
            lasts = None if until is None else until - now
            if name not in known and (lasts is None or lasts > 0):
                await self._store.write(name, entry, lasts=lasts, only_new=True)
                told = True
        return told

    def _follow(self, entries: dict[str, tuple[Entry, float | None]]) -> None:
        """Do as all do, except where we have a newer word that they have not heard yet."""
        now = self._clock.monotonic()
        wanted = {}
        if POLICY not in entries and POLICY not in self._untold:
            self._policy = None  # its time is over: the same again is news
        for name, (entry, left) in entries.items():
            if name == POLICY and POLICY not in self._untold:
                self._follow_policy(entry, left)
            elif name.startswith(_OVERRIDE) and left is not None:
                wanted[name.removeprefix(_OVERRIDE)] = (entry, now + left)
        for name, (entry, until) in wanted.items():
            try:
                limit = limit_named(name)
                if f"{_OVERRIDE}{name}" not in self._untold:
                    override = Override(float(entry.value), until, entry.who, entry.why)
                    self._set(limit, override, self._why(entry))
            except ValueError as error:  # no such limit, no such value, or no number at all
                logger.warning("fleet: an override cannot hold here: %s", error)
        for limit in [limit for limit in self._ours if limit not in wanted]:
            if f"{_OVERRIDE}{limit}" not in self._untold:
                self._clear(limit)
        if DRAINING not in self._untold:
            self._follow_drain(*entries.get(DRAINING, (None, None)))
        self.on_told()

    def _set(self, limit: Limit, override: Override, why: str) -> None:
        held = self._held(limit)
        self._ours[limit] = override
        if held is not None and _same(held, override):
            return
        before = self._limits.get(limit)
        self._limits.override(
            limit, override.value, until=override.until, who=override.who, why=override.why
        )
        ttl = override.until - self._clock.monotonic()
        self._note(limit, override.who, why, before, ttl)

    def _clear(self, limit: Limit) -> None:
        ours, held = self._ours.pop(limit), self._held(limit)
        if held is not None and _same(held, ours):
            before = self._limits.get(limit)
            self._limits.clear(limit)
            self._note(limit, ours.who, f"cleared: {ours.why}", before, None)

    def _follow_drain(self, entry: Entry | None, left: float | None) -> None:
        ours, here = self._drained, self._drain.hold
        said = None if here is None else (here.who, here.why)
        if entry is None:
            self._drained = None
            if ours is not None and said == (ours[0].who, self._why(ours[0])):
                self._drain.end(ours[0].who, f"undrained: {ours[0].why}", cause="fleet")
            return
        self._drained = (entry, None if left is None else self._clock.monotonic() + left)
        known = ours is not None and ours[0] == entry  # who ended it here since, meant it
        if not known and said != (entry.who, self._why(entry)):
            self._drain.begin(entry.who, self._why(entry), left, cause="fleet")

    def _follow_policy(self, entry: Entry, left: float | None) -> None:
        if self._policy is None or entry != self._policy[0]:
            self._policy = (entry, None if left is None else self._clock.monotonic() + left)
            self._policies.use(str(entry.value), who=entry.who, why=self._why(entry), ttl=left)

    def _why(self, entry: Entry) -> str:
        """The reason, and at the others where it comes from."""
        told = entry.origin and entry.origin != self.name
        return f"{entry.why} (told by {entry.origin})" if told else entry.why

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
