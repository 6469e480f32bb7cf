"""What the admin API serves of the console: its files, their headers, and the stream of frames."""

import asyncio
import re
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.control.console.stage import Stage

from surgetank.control.api import create_app
from surgetank.control.console.routes import FILES
from surgetank.control.console.stream import MOST, EventStream
from surgetank.control.listeners import AdminListener

MOST_BYTES = 300_000


@pytest.fixture
async def stage() -> Stage:
    return Stage()


@pytest.fixture
async def url(stage: Stage) -> AsyncIterator[str]:
    listener = AdminListener(create_app(stage, "s3cret"))
    port = await listener.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    stage.feed.close()
    await listener.stop()


async def test_the_page_is_at_the_root_and_needs_no_token(url: str) -> None:
    async with httpx.AsyncClient(follow_redirects=True) as client:
        for path in ("/", "/console", "/console/"):
            answer = await client.get(url + path)
            assert answer.status_code == 200
            assert answer.url.path == "/console/"
            assert "<title>Surgetank</title>" in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        kept = {"if-none-match": answer.headers["etag"]}
        assert (await client.get(url + "/console/", headers=kept)).status_code == 304
        assert (await client.get(url + "/console/../api.py")).status_code == 404


async def test_the_stream_asks_for_the_token(stage: Stage, url: str) -> None:
    stage.play(2)
    async with httpx.AsyncClient() as client:
        assert (await client.get(url + "/console/stream")).status_code == 401
        token = {"authorization": "Bearer s3cret"}
        async with client.stream("GET", url + "/console/stream", headers=token) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.aiter_lines()
            assert await anext(lines) == "event: history"
            async for line in lines:
                if line == "event: frame":
                    break
            assert stage.feed.readers == 1
            stage.feed.readers = MOST
            full = await client.get(url + "/console/stream", headers=token)
            assert full.status_code == 503
            assert "close one" in full.json()["error"]["message"]
            stage.feed.readers = 1
            stage.feed.close()
            assert "event: history" not in [line async for line in lines]
    assert stage.feed.readers == 0


async def test_a_reader_that_takes_nothing_is_dropped(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[str] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        taken.append(message["type"])
        if len(taken) > 2:
            await asyncio.Event().wait()

    stage.play(1)
    response = EventStream(stage.feed, patience=0.01)
    await asyncio.wait_for(response({"type": "http"}, _stays, send), 10)
    assert stage.feed.readers == 0
    assert len(taken) == 3
    assert "took nothing" in caplog.text


async def test_a_reader_that_leaves_is_forgotten(stage: Stage) -> None:
    async def left() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(_: MutableMapping[str, Any]) -> None:
        pass

    await asyncio.wait_for(EventStream(stage.feed)({"type": "http"}, left, send), 10)
    assert stage.feed.readers == 0


async def _stays() -> MutableMapping[str, Any]:
    await asyncio.Event().wait()
    return {}


def _files() -> list[Path]:
    return [path for path in FILES.rglob("*") if path.is_file()]


def test_all_of_it_is_small_and_from_here() -> None:
    assert sum(path.stat().st_size for path in _files()) < MOST_BYTES
    for path in _files():
        if "vendor" not in path.parts:
            text = path.read_text().replace("http://www.w3.org/", "")
            assert "http:" not in text, f"{path.name} names another server"
            assert "https:" not in text, f"{path.name} names another server"
            assert "innerHTML" not in text, f"{path.name} would run what a client wrote"
            assert len(text.splitlines()) < 200, f"{path.name} is long"
    assert (FILES / "vendor" / "uplot" / "LICENSE.md").read_text().startswith("The MIT License")


def test_every_module_and_id_that_is_named_exists() -> None:
    page = (FILES / "index.html").read_text()
    for name in re.findall(r'(?:href|src)="([^"#]+)"', page):
        assert (FILES / name).is_file(), name
    ids = set(re.findall(r' id="([^"]+)"', page))
    for script in (FILES / "js").glob("*.js"):
        text = script.read_text()
        for name in re.findall(r'from "\./([^"]+)"', text):
            assert (FILES / "js" / name).is_file(), f"{script.name} imports {name}"
        missing = set(re.findall(r'\bat\("([^"]+)"\)', text)) - ids
        assert not missing, f"{script.name} looks for {missing}"
