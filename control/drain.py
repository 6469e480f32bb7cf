"""Draining: nothing new is let in, what is in flight completes; for a while or for good."""

from collections.abc import Callable
from dataclasses import dataclass

from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock

WHAT = "draining"


@dataclass(frozen=True, slots=True)
class Hold:
    """Who drains, why, and until when (monotonic; None: until it is ended)."""

    who: str
    why: str
    until: float | None
    final: bool = False


class Drain:
    """Holds one switch; `turn` does what it says: to desk and doors, or to one engine."""

    def __init__(
        self, clock: Clock, journal: Journal, turn: Callable[[bool], None], what: str = WHAT
    ) -> None:
        """`what`: as the journal calls it."""
        self._clock = clock
        self._journal = journal
        self._turn = turn
        self._what = what
        self.hold: Hold | None = None

    @property
    def active(self) -> bool:
        """Whether new requests are refused as draining."""
        return self.hold is not None

    @property
    def final(self) -> bool:
        """Whether there is no way back: the process stops."""
        return self.hold is not None and self.hold.final

    def begin(self, who: str, why: str, ttl: float | None, cause: str = "operator") -> None:
        """Refuse new requests. Asked again, the newer reason and time hold, unless it is final."""
        if self.final:
            return
        until = None if ttl is None else self._clock.monotonic() + ttl
        before, self.hold = self.active, Hold(who, why, until)
        self._turn(True)
        self._note(who, why, before, True, ttl, cause)

    def begin_final(self, who: str, why: str) -> None:
        """Refuse new requests for good: the process stops, whatever is asked for later."""
        before, self.hold = self.active, Hold(who, why, None, final=True)
        self._turn(True)
        self._note(who, why, before, True, None, "process")

    def end(self, who: str, why: str, cause: str = "operator") -> None:
        """Take requests again; nothing happens when they are taken already, or never will be."""
        if self.hold is None or self.final:
            return
        self.hold = None
        self._turn(False)
        self._note(who, why, True, False, None, cause)

    def expire(self, now: float) -> None:
        """End it when its time is over."""
        if self.hold is not None and self.hold.until is not None and self.hold.until <= now:
            self.end(self.hold.who, f"expired: {self.hold.why}", cause="expiry")

    def _note(
        self, who: str, why: str, before: bool, after: bool, ttl: float | None, cause: str
    ) -> None:
        self._journal.write(
            who=who, why=why, what=self._what, before=before, after=after, ttl=ttl, cause=cause
        )
