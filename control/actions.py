"""What an operator may do to a running service; each act stands in the journal and expires."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from surgetank.admission.limits import Limit, LimitError, Limits, Override, limit_named
from surgetank.control.drain import Drain, Hold
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock


class WouldWorsen(Exception):
    """The act is refused for what is going on now; str() says why, and what else to do."""


def nothing_against(limit: Limit, before: float, after: float) -> None:
    """Whoever is not told what is going on objects to nothing."""


class Others(Protocol):
    """The other sidecars of a fleet: told at once or as soon as they can be, never waited for."""

    @property
    def any(self) -> bool:
        """Whether there is anybody to tell."""

    def tell_override(self, limit: Limit, override: Override | None) -> None:
        """What holds everywhere from now on; None: no override any more."""

    def tell_drain(self, hold: Hold | None) -> None:
        """All drain from now on, or None: no longer."""

    def tell_policy(self, name: str, *, until: float | None, who: str, why: str) -> None:
        """All promote this policy, until then."""

    def tell_rollback(self, name: str, *, who: str, why: str) -> None:
        """Where this policy is what all promote, they go back to what is configured."""


class NoOthers:
    """There is no fleet."""

    any = False

    def tell_override(self, limit: Limit, override: Override | None) -> None:
        """Nobody hears it."""

    def tell_drain(self, hold: Hold | None) -> None:
        """Nobody hears it."""

    def tell_policy(self, name: str, *, until: float | None, who: str, why: str) -> None:
        """Nobody hears it."""

    def tell_rollback(self, name: str, *, who: str, why: str) -> None:
        """Nobody hears it."""


class UnknownName(LookupError):
    """There is no such thing; the message names those that exist."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an act did, or with `dry_run` would have done. `ttl` in seconds; `fleet`: everywhere."""

    what: str
    before: float | bool
    after: float | bool
    ttl: float | None
    dry_run: bool = False
    fleet: bool = False


class Actions:
    """The operator's hands. Methods raise UnknownName and LimitError, with sentences to show.

    `object_to(limit, before, after)` says why a change would make things worse now, or None. An
    override is for the whole fleet, a drain for this sidecar unless it is asked for everywhere.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        journal: Journal,
        drain: Drain,
        object_to: Callable[[Limit, float, float], str | None] = nothing_against,
        others: Others | None = None,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._journal = journal
        self._drain = drain
        self._object_to = object_to
        self.others = others or NoOthers()

    def set_limit(
        self,
        name: str,
        value: float,
        *,
        ttl: float,
        who: str,
        why: str,
        dry_run: bool = False,
        force: bool = False,
    ) -> Change:
        """Override a limit for `ttl` seconds; a newer override replaces an older one. Raises
        WouldWorsen, unless forced."""
        limit = self._named(name)
        before = self._limits.get(limit)
        value = self._limits.checked(limit, value)
        if not force and (against := self._object_to(limit, before, value)) is not None:
            raise WouldWorsen(against)
        fleet = self.others.any
        if dry_run:
            return Change(limit, before, value, ttl, dry_run=True, fleet=fleet)
        until = self._clock.monotonic() + ttl
        self._limits.override(limit, value, until=until, who=who, why=why)
        self.others.tell_override(limit, Override(value, until, who, why))
        after = self._limits.get(limit)
        self._note(limit, who, why, before, after, ttl)
        return Change(limit, before, after, ttl, fleet=fleet)

    def clear_limit(self, name: str, *, who: str, why: str, dry_run: bool = False) -> Change:
        """End a limit's override; without one nothing changes and nothing is written."""
        limit = self._named(name)
        before = self._limits.get(limit)
        fleet = self.others.any
        if dry_run:
            after = self._limits.without_override(limit)
            return Change(limit, before, after, None, dry_run=True, fleet=fleet)
        if self._limits.overridden(limit):
            self._limits.clear(limit)
            self._note(limit, who, why, before, self._limits.get(limit), None)
        self.others.tell_override(limit, None)
        return Change(limit, before, self._limits.get(limit), None, fleet=fleet)

    def drain(
        self, *, who: str, why: str, ttl: float | None, dry_run: bool = False, fleet: bool = False
    ) -> Change:
        """Refuse new requests, until undrain or for `ttl` seconds; `fleet`: at all sidecars."""
        before, fleet = self._drain.active, fleet and self.others.any
        if not dry_run:
            self._drain.begin(who, why, ttl)
            if fleet and not self._drain.final:
                self.others.tell_drain(self._drain.hold)
        return Change("draining", before, True, ttl, dry_run, fleet)

    def undrain(self, *, who: str, why: str, dry_run: bool = False, fleet: bool = False) -> Change:
        """Take new requests again, unless the process stops; `fleet`: at all sidecars."""
        before, after = self._drain.active, self._drain.final
        fleet = fleet and self.others.any
        if not dry_run:
            self._drain.end(who, why)
            if fleet:
                self.others.tell_drain(None)
        return Change("draining", before, after, None, dry_run, fleet)

    def _named(self, name: str) -> Limit:
        try:
            return limit_named(name)
        except LimitError as error:
            raise UnknownName(str(error)) from error

    def _note(
        self, what: str, who: str, why: str, before: float, after: float, ttl: float | None
    ) -> None:
        self._journal.write(
            who=who, why=why, what=what, before=before, after=after, ttl=ttl, cause="operator"
        )
