"""A process tells where it is: also one that is stuck, and never one that is not there."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from surgetank.engine.stacks import StacksError, read_stacks

# `sum` runs in C and never lets go of the interpreter.
STUCK = """
import sys
from pathlib import Path
from surgetank.engine.stacks import StackFile

def never_ending_step(secret):
    print("in", flush=True)
    sum(range(10**15))

with StackFile(Path(sys.argv[1]), "engine"):
    never_ending_step("prompt text")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "engine.stacks"


@pytest.fixture
def stuck(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    yield process
    process.kill()
    process.wait(10)
    process.stdout.close()


def test_a_process_stuck_in_c_code_answers_as_often_as_it_is_asked(
    stuck: subprocess.Popen[str], path: Path
) -> None:
    for _ in range(2):
        found = read_stacks(path, patience=10)
        assert (found.process, found.pid) == ("engine", stuck.pid)
        assert found.text.count("in never_ending_step") == 1
        assert "most recent call first" in found.text
        assert "prompt text" not in found.text


def test_one_that_is_stopped_does_not_keep_us_waiting(
    stuck: subprocess.Popen[str], path: Path
) -> None:
    stuck.send_signal(signal.SIGSTOP)
    with pytest.raises(StacksError, match=rf"process {stuck.pid}\) does not answer within 0.05 s"):
        read_stacks(path, patience=0.05)


def test_one_that_has_ended(stuck: subprocess.Popen[str], path: Path) -> None:
    stuck.kill()
    stuck.wait(10)
    with pytest.raises(StacksError, match=rf"the engine \(process {stuck.pid}\) has ended"):
        read_stacks(path)


def test_no_file_and_another_kind_of_file(path: Path) -> None:
    with pytest.raises(StacksError, match="no process offers its stacks"):
        read_stacks(path)
    path.parent.mkdir()
    path.write_text("something else")
    with pytest.raises(StacksError, match="is not a stacks file"):
        read_stacks(path)
