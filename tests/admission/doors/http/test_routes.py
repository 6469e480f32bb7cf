"""The short answers: health, metrics, and what is not there."""

import json
import threading

import pytest
from tests.fakes_http import OpenDoor

from surgetank.admission.doors.http.routes import Health, RenderPage


def request(path: str, method: str = "GET", headers: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


@pytest.mark.parametrize(
    ("health", "live", "ready", "both"),
    [
        (Health(True, True), 200, 200, 200),
        (Health(True, False, "draining"), 200, 503, 503),
        (Health(False, True, "no step for 60 s"), 503, 200, 503),
    ],
)
async def test_live_and_ready_are_told_apart(
    open_door: OpenDoor, health: Health, live: int, ready: int, both: int
) -> None:
    door = await open_door()
    door.health.append(health)
    for path, expected in (("/health/live", live), ("/health/ready", ready), ("/health", both)):
        status, _, body = await door.exchange(request(path))
        assert status == expected
        assert json.loads(body)["detail"] == health.detail


async def test_metrics_are_read_on_the_event_loop_and_rendered_off_it(open_door: OpenDoor) -> None:
    threads: list[int] = []

    def render(accept: str) -> RenderPage:
        threads.append(threading.get_ident())

        def page() -> tuple[bytes, str]:
            threads.append(threading.get_ident())
            return f"# {accept}\n".encode(), "text/plain; x=y"

        return page

    door = await open_door(metrics=render)
    status, headers, body = await door.exchange(request("/metrics", headers="Accept: text/x\r\n"))
    assert (status, headers["content-type"], body) == (
        200,
        "text/plain; x=y",
        b"# text/x\n",
    )
    read, rendered = threads
    assert read == threading.get_ident()
    assert rendered != read


@pytest.mark.parametrize("at_once", [True, False])
async def test_metrics_that_fail_are_a_500(
    open_door: OpenDoor, caplog: pytest.LogCaptureFixture, at_once: bool
) -> None:
    def page() -> tuple[bytes, str]:
        raise KeyError("broken family")

    def render(accept: str) -> RenderPage:
        if at_once:
            page()
        return page

    door = await open_door(metrics=render)
    assert (await door.exchange(request("/metrics")))[0] == 500
    assert "broken family" in caplog.text


async def test_head_has_the_headers_of_get_and_no_body(open_door: OpenDoor) -> None:
    door = await open_door()
    client = await door.connect()
    client.send(request("/v1/models", "HEAD", "Connection: close\r\n"))
    status, headers, _ = await client.response(has_body=False)
    assert await client.eof() == b""
    _, _, body = await door.exchange(request("/v1/models"))
    assert (status, int(headers["content-length"])) == (200, len(body))


async def test_a_query_is_no_part_of_the_path(open_door: OpenDoor) -> None:
    door = await open_door()
    assert (await door.exchange(request("/v1/models?limit=1")))[0] == 200
    assert (await door.exchange(request("http://x/v1/models?a")))[0] == 200
    assert (await door.exchange(request("/v1/models/def%61ult")))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/", 404, None),
        ("POST", "/v1/embeddings", 404, None),
        ("GET", "/v1/models/", 404, None),
        ("GET", "/v1/chat/completions", 405, "post"),
        ("POST", "/v1/models", 405, "get, head"),
        ("DELETE", "/v1/models/tiny", 405, "get, head"),
        ("OPTIONS", "*", 404, None),
    ],
)
async def test_what_is_not_there_is_told_in_openais_shape(
    open_door: OpenDoor, method: str, path: str, status: int, allow: str | None
) -> None:
    door = await open_door()
    found, headers, body = await door.exchange(request(path, method, "Content-Length: 0\r\n"))
    assert (found, headers.get("allow")) == (status, allow)
    error = json.loads(body)["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert headers["x-should-retry"] == "false"
    assert door.desk.tickets == []
