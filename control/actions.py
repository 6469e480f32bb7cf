"""What an operator may do to a running service; each act stands in the journal and expires."""

from collections.abc import Callable
from dataclasses import dataclass

from surgetank.admission.limits import Limit, LimitError, Limits, limit_named
from surgetank.control.drain import Drain
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock


class WouldWorsen(Exception):
    """The act is refused for what is going on now; str() says why, and what else to do."""


def nothing_against(limit: Limit, before: float, after: float) -> None:
    """Whoever is not told what is going on objects to nothing."""


class UnknownName(LookupError):
    """There is no such thing; the message names those that exist."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an act did, or with `dry_run` would have done. `ttl` in seconds."""

    what: str
    before: float | bool
    after: float | bool
    ttl: float | None
    dry_run: bool = False


class Actions:
    """The operator's hands. Methods raise UnknownName and LimitError, with sentences to show.

    `object_to(limit, before, after)` says why a change would make things worse now, or None.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        journal: Journal,
        drain: Drain,
        object_to: Callable[[Limit, float, float], str | None] = nothing_against,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._journal = journal
        self._drain = drain
        self._object_to = object_to

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
        if dry_run:
            return Change(limit, before, value, ttl, dry_run=True)
        until = self._clock.monotonic() + ttl
        self._limits.override(limit, value, until=until, who=who, why=why)
        after = self._limits.get(limit)
        self._note(limit, who, why, before, after, ttl)
        return Change(limit, before, after, ttl)

    def clear_limit(self, name: str, *, who: str, why: str, dry_run: bool = False) -> Change:
        """End a limit's override; without one nothing changes and nothing is written."""
        limit = self._named(name)
        before = self._limits.get(limit)
        if dry_run:
            return Change(limit, before, self._limits.without_override(limit), None, dry_run=True)
        if self._limits.overridden(limit):
            self._limits.clear(limit)
            self._note(limit, who, why, before, self._limits.get(limit), None)
        return Change(limit, before, self._limits.get(limit), None)

    def drain(self, *, who: str, why: str, ttl: float | None, dry_run: bool = False) -> Change:
        """Refuse new requests, until undrain or for `ttl` seconds."""
        before = self._drain.active
        if not dry_run:
            self._drain.begin(who, why, ttl)
        return Change("draining", before, True, ttl, dry_run)

    def undrain(self, *, who: str, why: str, dry_run: bool = False) -> Change:
        """Take new requests again, unless the process stops."""
        before, after = self._drain.active, self._drain.final
        if not dry_run:
            self._drain.end(who, why)
        return Change("draining", before, after, None, dry_run)

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
