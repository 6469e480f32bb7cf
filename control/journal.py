"""The journal: every change of a limit or of the service's state, with who, why, before and after.

Append-only JSON lines in a file, and the newest entries in memory. The journal serves the
service, never the other way round: a full disk is counted and logged, and nothing else.
"""

import logging
import os
from collections import deque
from pathlib import Path

import msgspec

from surgetank.telemetry.clock import Clock
from surgetank.telemetry.family import Counter

logger = logging.getLogger(__name__)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One change. `at` is seconds since the Unix epoch, `ttl` seconds (None: no expiry)."""

    at: float
    who: str
    why: str
    what: str  # the limit's name, draining, or policy NAME; of one engine, with its name
    before: float | bool | str | None
    after: float | bool | str | None
    ttl: float | None = None
    cause: str  # operator, fleet, restart, expiry, policy or process


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class Journal:
    """Appends entries; keeps the newest `keep` in memory, those of an earlier run included."""

    def __init__(
        self, clock: Clock, path: Path | None, *, keep: int = 1000, failures: Counter | None = None
    ) -> None:
        self._clock = clock
        self._path = path
        self._ring: deque[Entry] = deque(maxlen=keep)
        self._file_works = True
        self._torn = False  # the file ends amid a line
        self._failures = failures or Counter()  # entries that the file did not get
        self.unreadable = 0  # lines of the file that are no entries (a torn write)
        if path is not None:
            self._reopen(path)

    @property
    def failures(self) -> int:
        """Entries that the file did not get."""
        return int(self._failures.value)

    def write(
        self,
        *,
        who: str,
        why: str,
        what: str,
        before: float | bool | str | None,
        after: float | bool | str | None,
        ttl: float | None = None,
        cause: str,
    ) -> Entry:
        """Record one change; never raises for what the file does."""
        entry = Entry(
            at=self._clock.wall(),
            who=who,
            why=why,
            what=what,
            before=before,
            after=after,
            ttl=ttl,
            cause=cause,
        )
        self._ring.append(entry)
        logger.info("%s: %s -> %s by %s (%s): %s", what, before, after, who, cause, why)
        if self._path is not None:
            self._append(self._path, _encoder.encode(entry) + b"\n")
        return entry

    def recent(self, last: int = 50) -> list[Entry]:
        """The newest entries, oldest of them first."""
        entries = list(self._ring)
        return entries[max(0, len(entries) - last) :]

    def _append(self, path: Path, line: bytes) -> None:
        try:
            with path.open("ab", buffering=0) as file:
                whole = b"\n" + line if self._torn else line
                written = file.write(whole)
                if written:
                    self._torn = written != len(whole)
                if written != len(whole):
                    raise OSError(f"only {written} of {len(whole)} bytes were written")
        except OSError as error:
            self._failures.value += 1
            self._file_failed(path, error)
        else:
            if not self._file_works:
                logger.warning("journal %s: writable again, %d entries lost", path, self.failures)
            self._file_works = True

    def _file_failed(self, path: Path, error: OSError) -> None:
        if self._file_works:
            logger.error("journal %s: %s; entries are kept in memory only", path, error)
        self._file_works = False

    def _reopen(self, path: Path) -> None:
        """Make the folder, read the newest entries back, and see whether the last line is torn."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                return
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                begin = file.seek(max(0, size - 512 * (self._ring.maxlen or 0)))
                tail = file.read(size - begin)
            lines = tail.split(b"\n")
            for line in lines[1 if begin else 0 :]:
                self._read_back(line)
            self._torn = bool(lines[-1])
        except OSError as error:
            self._file_failed(path, error)

    def _read_back(self, line: bytes) -> None:
        if not line:
            return
        try:
            self._ring.append(_decoder.decode(line))
        except msgspec.DecodeError as error:
            self.unreadable += 1
            logger.warning("journal %s: skipped a line: %s", self._path, error)
