"""The flight recorder: the last steps in a memory-mapped file that outlives the engine.

    header    magic, version, layout, record size, capacity, the newest step, who wrote it
    slots     the record of step n in slot n mod capacity: CRC-32 of the rest, then its fields

The writer names the newest step first and fills its slot then, so that whoever reads while it
writes, or after it was killed in between, finds a slot whose checksum is wrong, and knows. The
kernel keeps a shared mapping's pages when the process dies, and drops its lock on the file.
"""

import fcntl
import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, get_args, get_origin

import msgspec

from surgetank.engine.api import ModelCard
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.steprecord import StepRecord

MAGIC = b"SURGRING"
VERSION = 1
_HEADER = struct.Struct("<8sIIIIQI")
_NEWEST_AT = 24  # of the header's bytes: the newest step
_NEWEST = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_SLOTS_AT = 4096  # the header's page, most of it for who wrote the ring
_CODES = {int: "q", float: "d", bool: "?"}


class RingError(Exception):
    """A ring cannot be made or read; says which and why, in a sentence."""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """Which engine wrote a ring, and what its records are to be read with."""

    pid: int
    started_at: float  # seconds since the Unix epoch
    clock_offset: float  # add it to a record's `at` for seconds since the Unix epoch
    version: str  # of surgetank
    model: str
    kv_block_size: int  # tokens
    kv_blocks: int
    max_num_seqs: int


def writer_of(card: ModelCard, clock: Clock) -> Writer:
    """An engine that begins its ring now."""
    now = clock.wall()
    return Writer(
        pid=card.pid,
        started_at=now,
        clock_offset=now - clock.monotonic(),
        version=card.engine_version,
        model=card.name,
        kv_block_size=card.kv_block_size,
        kv_blocks=card.kv_blocks,
        max_num_seqs=card.max_num_seqs,
    )


@dataclass(frozen=True, slots=True)
class Ring:
    """What a ring held when it was read."""

    path: Path
    writer: Writer
    alive: bool  # its engine still runs
    capacity: int  # steps
    newest: int  # step; 0 before the first
    records: list[StepRecord]  # oldest first
    unreadable: int  # records that were being written when they were read, or when it died


class _Layout:
    """A record's fields in their own order, each of fixed size, taken from StepRecord itself."""

    def __init__(self) -> None:
        fields = msgspec.structs.fields(StepRecord)
        self._shapes = [(each.name, _length(each)) for each in fields]
        codes = "".join(map(_code, fields))
        self.struct = struct.Struct("<" + codes)
        self.digest = zlib.crc32(repr((self._shapes, codes)).encode())

    def pack(self, record: StepRecord) -> bytes:
        values: list[float] = []
        for value in msgspec.structs.astuple(record):
            if type(value) is tuple:
                values += value
            else:
                values.append(value)
        return self.struct.pack(*values)

    def unpack(self, data: bytes) -> StepRecord:
        values = iter(self.struct.unpack(data))
        told: dict[str, Any] = {
            name: next(values) if length is None else tuple(islice(values, length))
            for name, length in self._shapes
        }
        return StepRecord(**told)


def _length(field: msgspec.structs.FieldInfo) -> int | None:
    """How many values a tuple has, one of any length as many as its default; None: no tuple."""
    if get_origin(field.type) is not tuple:
        return None
    types = get_args(field.type)
    return len(field.default) if types[-1] is Ellipsis else len(types)


def _code(field: msgspec.structs.FieldInfo) -> str:
    length = _length(field)
    return _CODES[field.type] if length is None else f"{length}{_CODES[get_args(field.type)[0]]}"


_LAYOUT = _Layout()
_SLOT = _CRC.size + _LAYOUT.struct.size


def ring_path(socket: Path) -> Path:
    """Where the engine of a socket keeps its ring: beside it."""
    return socket.with_suffix(".steps")


def previous_path(ring: Path) -> Path:
    """Where a ring goes when the next engine begins its own."""
    return ring.with_name(ring.name + ".previous")


class RingWriter:
    """Writes one engine's records, one write() a step, until it leaves the context."""

    def __init__(self, path: Path, capacity: int, writer: Writer) -> None:
        """Begins a new ring; one with steps in it is kept as the previous. Raises RingError."""
        self._capacity = capacity
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _keep_previous(path)
            self._file = _create(path, _header(capacity, writer), _SLOTS_AT + capacity * _SLOT)
        except OSError as error:
            raise RingError(f"step ring {path}: {error.strerror or error}") from error
        self._map = mmap.mmap(self._file.fileno(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._map.close()
        self._file.close()

    def write(self, record: StepRecord) -> None:
        """Keep a step's record in place of the one `capacity` steps older."""
        body = _LAYOUT.pack(record)
        at = _SLOTS_AT + record.step % self._capacity * _SLOT
        _NEWEST.pack_into(self._map, _NEWEST_AT, record.step)
        self._map[at : at + _SLOT] = _CRC.pack(zlib.crc32(body)) + body


def read_ring(path: Path, last: int | None = None) -> Ring:
    """The newest `last` records (None: all there are), oldest first. Raises RingError."""
    try:
        with path.open("rb") as file:
            capacity, newest, writer = _read_header(path, os.pread(file.fileno(), _SLOTS_AT, 0))
            alive = _is_locked(file)
            reach = capacity if last is None else min(last, capacity)
            records, unreadable = [], 0
            for step in range(max(1, newest - reach + 1), newest + 1):
                record = _read_slot(file, capacity, step) or _read_slot(file, capacity, step)
                if record is None:
                    unreadable += 1
                elif record.step == step:  # else the writer has come round meanwhile
                    records.append(record)
    except OSError as error:
        raise RingError(f"step ring {path}: {error.strerror or error}") from error
    return Ring(path, writer, alive, capacity, newest, records, unreadable)


def _read_slot(file: BinaryIO, capacity: int, step: int) -> StepRecord | None:
    data = os.pread(file.fileno(), _SLOT, _SLOTS_AT + step % capacity * _SLOT)
    if len(data) < _SLOT or zlib.crc32(data[_CRC.size :]) != _CRC.unpack_from(data)[0]:
        return None
    return _LAYOUT.unpack(data[_CRC.size :])


def _read_header(path: Path, data: bytes) -> tuple[int, int, Writer]:
    """Capacity, newest step and writer; RingError when it is not a ring that we can read."""
    if len(data) < _SLOTS_AT or not data.startswith(MAGIC):
        raise RingError(f"{path} is not a step ring")
    _, version, layout, size, capacity, newest, length = _HEADER.unpack_from(data)
    try:
        writer = msgspec.msgpack.decode(data[_HEADER.size : _HEADER.size + length], type=Writer)
    except msgspec.DecodeError as error:
        raise RingError(f"{path} is a step ring of another kind: {error}") from error
    if (version, layout, size) != (VERSION, _LAYOUT.digest, _SLOT):
        raise RingError(
            f"{path} was written by surgetank {writer.version} in ring version {version}, layout "
            f"{layout:08x}; this one reads version {VERSION}, layout {_LAYOUT.digest:08x}: "
            "read it with the surgetank that wrote it"
        )
    return capacity, newest, writer


def _header(capacity: int, writer: Writer) -> bytes:
    about = msgspec.msgpack.encode(writer)
    head = _HEADER.pack(MAGIC, VERSION, _LAYOUT.digest, _SLOT, capacity, 0, len(about))
    return head + about


def _create(path: Path, header: bytes, size: int) -> BinaryIO:
    """A file of that size with its pages reserved, under its name only once it is whole."""
    fresh = path.with_name(path.name + ".new")
    file = os.fdopen(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.posix_fallocate(file.fileno(), 0, size)  # else a full disk would kill us at a write
        os.pwrite(file.fileno(), header, 0)
        fresh.replace(path)
    except OSError:
        file.close()
        fresh.unlink(missing_ok=True)
        raise
    return file


def _keep_previous(path: Path) -> None:
    """A dead engine's steps stay readable while its successor runs."""
    try:
        with path.open("rb") as file:
            head = os.pread(file.fileno(), _HEADER.size, 0)
    except FileNotFoundError:
        return
    whole = len(head) == _HEADER.size and head.startswith(MAGIC)
    if whole and _NEWEST.unpack_from(head, _NEWEST_AT)[0]:
        path.replace(previous_path(path))


def _is_locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
