"""HTTP doors in front of a FakeDesk, started and stopped around each test."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from tests.fakes import FakeDesk
from tests.fakes_http import Door, OpenDoor

from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.routes import Health, RenderMetrics
from surgetank.admission.doors.http.server import HttpServer
from surgetank.admission.doors.http.text_routes import TextRoutes
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.vocabulary import Reason


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both kinds of loop: the product's, and the one that others may bring."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def open_door() -> AsyncIterator[OpenDoor]:
    """Starts a door with a configuration and a desk of the test's choice."""
    doors: list[Door] = []

    async def start(
        desk: FakeDesk | None = None,
        metrics: RenderMetrics = lambda accept: lambda: (b"up 1\n", "text/plain"),
        **config: object,
    ) -> Door:
        clock, health, unread = ManualClock(), [Health(True, True)], list[Reason]()
        desk = desk or FakeDesk()
        settings = HttpConfig.model_validate({"port": 0, **config})
        server = HttpServer(
            settings,
            desk,
            TextRoutes(settings, desk, clock),
            health=lambda: health[-1],
            metrics=metrics,
            clock=clock,
            rng=random.Random(1),
            unread=unread.append,
        )
        await server.start()
        doors.append(Door(server, desk, clock, health, unread))
        return doors[-1]

    yield start
    for door in doors:
        await door.close()
