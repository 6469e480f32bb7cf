"""A played service, and commands that ask it over its admin API."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from tests.control.asking import Ask
from tests.control.service import PlayedService

from surgetank.control.api import create_app
from surgetank.control.cli import main
from surgetank.control.listeners import AdminListener


@pytest.fixture
def service() -> PlayedService:
    return PlayedService()


@pytest.fixture
def url(service: PlayedService) -> Iterator[str]:
    """The admin API of a played service, served from a thread."""
    bound: list[int] = []
    up, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        listener = AdminListener(create_app(service))
        bound.append(await listener.start("127.0.0.1", 0))
        up.set()
        await stop.wait()
        await listener.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(10)
    yield f"http://127.0.0.1:{bound[0]}"
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(10)


@pytest.fixture
def ask(url: str, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run a command; everything on one line, as scripts see it."""
    monkeypatch.setenv("SURGETANK_URL", url)
    return lambda *arguments: CliRunner().invoke(main, arguments)
