"""What operators have set and what still holds, in a file: so that it outlives a crash.

The file is there while something stands, and goes when the sidecar stops in order: a service that
is started anew begins as configured, one that is restarted after a crash goes on as it was told.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from surgetank.admission.limits import (
    Limit,
    LimitChange,
    LimitError,
    Limits,
    Override,
    limit_named,
)
from surgetank.control.actions import UnknownName
from surgetank.control.backend_drains import BackendDrains
from surgetank.control.drain import Drain, Hold
from surgetank.control.journal import Journal
from surgetank.telemetry.clock import Clock

logger = logging.getLogger(__name__)
_BY_OPERATORS = ("operator", "expiry")


class Held(msgspec.Struct, frozen=True):
    """One act: an override's value (None for a drain), and until when (Unix time, None: ended)."""

    who: str
    why: str
    until: float | None
    value: float | None = None
    life: str = ""  # of Redis, in which the fleet was told of it; "": it was not


class Acts(msgspec.Struct, frozen=True):
    """Everything that stands."""

    limits: dict[str, Held] = {}
    drain: Held | None = None
    backends: dict[str, Held] = {}  # engines that drain


def standing_path(socket: Path) -> Path:
    """Beside the socket of its engine: one file for each pair of engine and sidecar."""
    return socket.with_suffix(".standing.json")


class Standing:
    """Writes the file at every act; a file that cannot be written is logged, and nothing else."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        limits: Limits,
        drain: Drain,
        backends: BackendDrains,
        journal: Journal,
        life_of: Callable[[Limit, Override], str] = lambda limit, override: "",
    ) -> None:
        self._path = path
        self._life_of = life_of
        self._clock = clock
        self._limits = limits
        self._drain = drain
        self._backends = backends
        self._journal = journal
        self._written = Acts()
        self._open = True
        limits.on_change(self._on_limit_change)

    def restore(self) -> dict[Limit, str]:
        """Set again what stood when the process before this one died; returns for each override
        that the fleet was told of, in which life of Redis that was."""
        acts = self._written = self._read()
        shift = self._clock.monotonic() - self._clock.wall()
        for name, held in acts.limits.items():
            if held.value is not None and held.until is not None:
                self._override(name, held, held.value, held.until + shift)
        lives = {
            view.name: told.life
            for view in self._limits.snapshot()
            if view.override is not None and (told := acts.limits.get(view.name)) is not None
        }
        if acts.drain is not None:
            self._begin(self._drain, acts.drain)
        for name, held in acts.backends.items():
            try:
                self._begin(self._backends.named(name), held)
            except UnknownName as error:
                logger.warning("a drain cannot be set again: %s", error)
        self.save()
        return lives

    def save(self) -> None:
        """Write down what stands now."""
        if not self._open:
            return
        shift = self._clock.wall() - self._clock.monotonic()
        limits = {
            view.name.value: Held(
                held.who, held.why, held.until + shift, held.value, self._life_of(view.name, held)
            )
            for view in self._limits.snapshot()
            if (held := view.override) is not None
        }
        hold = self._drain.hold
        drain = None if hold is None or hold.final else _held(hold, shift)
        backends = {name: _held(hold, shift) for name, hold in self._backends.holds.items()}
        acts = Acts(limits, drain, backends)
        if acts != self._written:
            self._write(acts)
            self._written = acts

    def forget(self) -> None:
        """The process stops in order: the next one begins as configured."""
        self._open = False
        self._write(Acts())

    def _on_limit_change(self, change: LimitChange) -> None:
        if change.cause in _BY_OPERATORS:
            self.save()

    def _begin(self, drain: Drain, held: Held) -> None:
        left = None if held.until is None else held.until - self._clock.wall()
        if left is None or left > 0:
            drain.begin(held.who, held.why, left, cause="restart")

    def _override(self, name: str, held: Held, value: float, until: float) -> None:
        now = self._clock.monotonic()
        if until <= now:
            return
        try:
            limit = limit_named(name)
            before = self._limits.get(limit)
            self._limits.override(limit, value, until=until, who=held.who, why=held.why)
        except LimitError as error:
            logger.warning("an override cannot be set again: %s", error)
            return
        after = self._limits.get(limit)
        self._journal.write(
            who=held.who,
            why=held.why,
            what=name,
            before=before,
            after=after,
            ttl=until - now,
            cause="restart",
        )

    def _read(self) -> Acts:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    raise PermissionError("it is another user's")
                return msgspec.json.decode(file.read(), type=Acts)
        except FileNotFoundError:
            return Acts()
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("what stood before cannot be read from %s: %s", self._path, error)
            return Acts()

    def _write(self, acts: Acts) -> None:
        try:
            if acts == Acts():
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(acts))
            os.replace(fresh, self._path)
        except OSError as error:
            logger.warning("%s: %s; what stands now would not outlive a crash", self._path, error)


def _held(hold: Hold, shift: float) -> Held:
    """`shift`: from the monotonic clock to the wall's."""
    return Held(hold.who, hold.why, None if hold.until is None else hold.until + shift)
