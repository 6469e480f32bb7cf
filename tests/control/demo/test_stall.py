"""A stall stops what it says, all of it, and lets it go on."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import until

from surgetank.control.demo.stall import StoppedProcess, descendants, frozen_wire

FAMILY = (
    "import subprocess, sys;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print(child.pid, flush=True);"
    "child.wait()"
)


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A process and its child."""
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent.pid, child
        subprocess.run(["kill", "-9", str(child), str(parent.pid)], check=True)


def state(pid: int) -> str:
    """As ps tells it: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_stops_with_its_children_and_goes_on(family: tuple[int, int]) -> None:
    parent, child = family
    assert descendants(parent) == [child]
    stall = StoppedProcess(parent)
    stall.begin()
    until(lambda: [state(each) for each in family] == ["T", "T"], "both are stopped")
    stall.end()
    until(lambda: "T" not in [state(each) for each in family], "both go on")
    stall.end()  # nothing is left to let go on


def test_a_process_that_is_not_there_cannot_be_stopped() -> None:
    stall = StoppedProcess(2**22 + 1)  # above the largest that Linux gives
    with pytest.raises(ProcessLookupError):
        stall.begin()
    stall.end()


async def test_no_byte_passes_a_frozen_wire_and_none_is_lost() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, frozen_wire(f"http://127.0.0.1:{port}/base") as (wire, url):
        assert url.endswith("/base")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])
        )
        async with asyncio.timeout(10):
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            wire.begin()
            writer.write(b"two")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readexactly(3), 0.05)
            wire.end()
            assert await reader.readexactly(3) == b"two"
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
