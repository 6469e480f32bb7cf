"""Answers of the inference routes tell the load where that is wanted; no other answer does."""

import random

import pytest
from tests.fakes import FakeDesk
from tests.fakes_http import RawClient

from surgetank.admission.doors.http.config import HttpConfig
from surgetank.admission.doors.http.exchange import Pairs
from surgetank.admission.doors.http.head import Head
from surgetank.admission.doors.http.routes import Health
from surgetank.admission.doors.http.server import HttpServer
from surgetank.admission.doors.http.text_routes import TextRoutes
from surgetank.telemetry.clock import ManualClock


def told(head: Head) -> Pairs:
    return [("endpoint-load-metrics", head.header("endpoint-load-metrics-format") + " a=1")]


@pytest.mark.parametrize(
    ("line", "header"),
    [("POST /v1/completions", "text a=1"), ("GET /v1/models", None), ("GET /health", None)],
)
async def test_only_inference_tells(line: str, header: str | None) -> None:
    config, desk, clock = HttpConfig(port=0), FakeDesk(), ManualClock()
    server = HttpServer(
        config,
        desk,
        TextRoutes(config, desk, clock),
        health=lambda: Health(True, True),
        metrics=lambda accept: lambda: (b"", "text/plain"),
        clock=clock,
        rng=random.Random(1),
        load=told,
    )
    await server.start()
    client = await RawClient.connect(server.port)
    client.send(
        f"{line} HTTP/1.1\r\nhost: x\r\nendpoint-load-metrics-format: TEXT\r\n\r\n".encode()
    )
    _, headers, _ = await client.response()
    assert headers.get("endpoint-load-metrics") == header
    client.close()
    await server.stop()
