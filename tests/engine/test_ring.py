"""The step ring: what is written is read, whatever happens to the writer in between."""

import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from tests.fakes import step_record, tiny_card

from surgetank.engine import ring
from surgetank.engine.ring import RingError, RingWriter, Writer, previous_path, read_ring, writer_of
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.steprecord import OOMS, OPERATORS, PREEMPTIONS

CAPACITY = 16
ABOUT: Writer = writer_of(tiny_card(), ManualClock(now=50.0))
# Every kind of field, with values that only their own place can give back.
RICH = {
    "at": 123.456789,
    "waiting": (1, 2, 3, 4),
    "running": (5, 6, 7, 8),
    "contended": True,
    "swapped_out_bytes": 2**40,
    "preemptions": tuple(range(len(PREEMPTIONS))),
    "ooms": tuple(range(len(OOMS))),
    "operators": tuple(index / 7 for index in range(len(OPERATORS))),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "engine.steps"


def write(path: Path, steps: int, first: int = 1) -> None:
    with RingWriter(path, CAPACITY, ABOUT) as writer:
        for step in range(first, first + steps):
            writer.write(step_record(step=step, kv_used=step))


def numbers(path: Path, last: int | None = None) -> list[int]:
    return [record.step for record in read_ring(path, last).records]


def test_a_record_comes_back_as_it_was(path: Path) -> None:
    with RingWriter(path, CAPACITY, ABOUT) as writer:
        writer.write(step_record(step=1, **RICH))
        found = read_ring(path)
    assert found.records == [step_record(step=1, **RICH)]
    assert found.writer == ABOUT
    assert (found.writer.clock_offset, found.capacity, found.newest) == (1_699_999_950.0, 16, 1)


def test_it_keeps_the_newest_and_gives_as_many_as_are_asked_for(path: Path) -> None:
    write(path, 0)
    assert numbers(path) == []
    write(path, 5)
    assert numbers(path) == [1, 2, 3, 4, 5]
    assert numbers(path, last=2) == [4, 5]
    write(path, 40)
    assert numbers(path) == list(range(25, 41))
    assert numbers(path, last=99) == list(range(25, 41))


def test_a_half_written_record_is_told_and_the_others_are_read(path: Path) -> None:
    write(path, 10)
    with path.open("r+b") as file:
        file.seek(ring._SLOTS_AT + 7 * ring._SLOT + 100)
        file.write(b"\xff" * 8)
    found = read_ring(path)
    assert [record.step for record in found.records] == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert found.unreadable == 1


def test_a_writer_that_died_between_header_and_record(path: Path) -> None:
    write(path, 10)
    with path.open("r+b") as file:
        file.seek(ring._NEWEST_AT)
        file.write(ring._NEWEST.pack(11))
    found = read_ring(path)
    assert (found.newest, found.records[-1].step, found.unreadable) == (11, 10, 1)


def test_a_record_that_the_writer_has_overtaken_is_left_out(path: Path) -> None:
    write(path, CAPACITY)
    with path.open("r+b") as file:  # the slot of step 1 already holds step 17
        file.seek(ring._SLOTS_AT + ring._SLOT)
        body = ring._LAYOUT.pack(step_record(step=17))
        file.write(ring._CRC.pack(zlib.crc32(body)) + body)
    found = read_ring(path)
    assert [record.step for record in found.records] == list(range(2, 17))
    assert found.unreadable == 0


def test_whether_the_engine_lives(path: Path) -> None:
    with RingWriter(path, CAPACITY, ABOUT):
        assert read_ring(path).alive
    assert not read_ring(path).alive


def test_the_next_engine_keeps_the_steps_of_the_one_before(path: Path) -> None:
    write(path, 3)
    write(path, 0)  # one that never came to a step does not push them out
    write(path, 1)
    assert numbers(path) == [1]
    assert numbers(previous_path(path)) == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"SURGRING", b"x" * 8192])
def test_what_is_no_ring_gives_way_to_one(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    write(path, 2)
    assert numbers(path) == [1, 2]
    assert not previous_path(path).exists()


def test_a_ring_of_another_layout_says_who_can_read_it(path: Path) -> None:
    write(path, 3)
    with path.open("r+b") as file:
        file.seek(len(ring.MAGIC))
        file.write((7).to_bytes(4, "little"))
    with pytest.raises(RingError, match=rf"surgetank {ABOUT.version} in ring version 7.*reads ver"):
        read_ring(path)


@pytest.mark.parametrize("content", [b"", b"SURGRING", b"x" * 8192, b"SURGRING" + b"\xff" * 8192])
def test_what_is_no_ring(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RingError, match=r"is (not )?a step ring"):
        read_ring(path)


def test_no_file_and_no_room(path: Path) -> None:
    with pytest.raises(RingError, match="No such file"):
        read_ring(path)
    path.parent.joinpath("file").touch()
    with pytest.raises(RingError, match=r"file/engine.steps: (Not a directory|File exists)"):
        RingWriter(path.parent / "file" / "engine.steps", CAPACITY, ABOUT)


ENDLESS = """
import sys
from pathlib import Path
from tests.engine.test_ring import ABOUT, CAPACITY
from tests.fakes import step_record
from surgetank.engine.ring import RingWriter
with RingWriter(Path(sys.argv[1]), CAPACITY, ABOUT) as writer:
    step = 0
    while True:
        step += 1
        writer.write(step_record(step=step, kv_used=step, preempted_tokens=-step))
"""


def test_a_reader_beside_a_writer_that_is_killed(path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(path)], cwd=Path(__file__).parents[2]
    )
    try:
        seen = 0
        while seen < 2000:
            assert writer.poll() is None
            if path.exists():
                found = read_ring(path)
                assert found.alive
                assert all(r.kv_used == r.step == -r.preempted_tokens for r in found.records)
                seen = found.newest
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
    found = read_ring(path)
    assert not found.alive
    assert found.unreadable <= 1
    # Killed between announcing a step and writing it, its place still holds the old one.
    assert len(found.records) + found.unreadable in (CAPACITY - 1, CAPACITY)
    assert all(r.kv_used == r.step == -r.preempted_tokens for r in found.records)
