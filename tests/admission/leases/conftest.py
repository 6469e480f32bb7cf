"""Fixtures: a redis-server of the test's own, and a line to it."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.admission.leases.redis_rig import Line, RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:  # a socket's path must be short
        server = RedisServer(Path(folder))
        server.start()
        yield server
        server.kill()


@pytest.fixture
async def line(server: RedisServer) -> AsyncIterator[Line]:
    line = Line(server)
    await line.start()
    yield line
    await line.close()
