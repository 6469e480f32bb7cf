"""The console in a real Chromium: it loads, updates, acts by keyboard, and shows a storm."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from tests.control.console.browser import Browser, Tab, find_browser, running
from tests.control.console.stage import Stage

from surgetank.control.api import create_app
from surgetank.control.console import picture
from surgetank.control.console.frame import EngineLine
from surgetank.control.listeners import AdminListener

PROGRAM = find_browser()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (apt-get install chromium)"),
    pytest.mark.asyncio(loop_scope="module"),
]
LIVE = "document.body?.dataset.link === 'live'"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    async with running(PROGRAM or "", tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console-pictures")


class Opened:
    """A page of a played service, and the service."""

    def __init__(self, stage: Stage, tab: Tab, url: str) -> None:
        self.stage = stage
        self.tab = tab
        self.url = url

    async def number(self, selector: str) -> float:
        """What an element shows, as a number."""
        return float((await self.tab.text(selector)).replace(",", ""))

    async def type_into(self, name: str, text: str) -> None:
        """Into a field of the open dialog."""
        await self.tab.look(f"document.querySelector('dialog[open] [name={name}]').select()")
        await self.tab.type(text)

    async def play(self, seconds: int, rate: float, tries: int = 1) -> None:
        """As Stage.play, with each frame shown."""
        for _ in range(seconds):
            frame = self.stage.play(1, rate, tries)
            await self.shows(frame.number)

    async def shows(self, number: int) -> None:
        """Returns when the page has that frame: its charts are the last to be drawn."""
        await self.tab.until(f"document.body.dataset.frame >= {number}")


@pytest_asyncio.fixture(loop_scope="module")
async def opened(browser: Browser) -> AsyncIterator[Opened]:
    stage = Stage()
    stage.calm(60)
    listener = AdminListener(create_app(stage))
    url = f"http://127.0.0.1:{await listener.start('127.0.0.1', 0)}/"
    tab = await browser.tab()
    await tab.size(1440, 900)
    await tab.goto(url)
    await tab.until(LIVE)
    yield Opened(stage, tab, url)
    assert tab.problems == []
    await tab.close()
    stage.feed.close()
    await listener.stop()


async def test_it_loads_with_history_and_its_numbers_move(opened: Opened) -> None:
    assert await opened.tab.text("#verdict-word") == "Healthy"
    assert await opened.tab.text("#state-word") == "ready"
    assert await opened.tab.look("document.querySelectorAll('.uplot canvas').length") == 4
    frame = opened.stage.play(1, rate=40)
    await opened.shows(frame.number)
    shown = await opened.number("#arrivals-rate")
    assert shown == pytest.approx(frame.arrivals.first, rel=0.01)
    assert await opened.number("#served-rate") == pytest.approx(frame.outcomes["ok"], rel=0.01)
    assert frame.kv is not None
    used = await opened.tab.look("document.querySelectorAll('#kv .used').length")
    assert used == pytest.approx(96 * frame.kv.used / frame.kv.blocks, abs=1)


async def test_a_limit_is_set_by_keyboard_and_stands_in_the_journal(opened: Opened) -> None:
    tab = opened.tab
    await tab.press("l")
    await tab.until("document.querySelector('#act[open]')")
    assert await tab.look("document.activeElement.name") == "name"
    await opened.type_into("value", "64")
    await opened.type_into("why", "shorter queue")
    await opened.type_into("who", "ada")
    await tab.press("Enter")
    await tab.until("document.querySelector('#act-submit').textContent === 'Confirm'")
    assert "256 req → 64 req" in await tab.text("#act-change")
    assert opened.stage.journal.recent() == [], "a preview changes nothing"
    await tab.press("Enter")
    await tab.until("!document.querySelector('#act[open]')")
    entry = opened.stage.journal.recent()[-1]
    assert (entry.what, entry.after, entry.ttl) == ("queue_requests", 64, 600)
    assert (entry.who, entry.why, entry.cause) == ("ada", "shorter queue", "operator")
    await opened.play(1, rate=5)
    assert "ada: shorter queue" in await tab.text("#journal-rows")
    assert "ada" in await tab.text("#limit-rows .held")
    await tab.press("d")
    assert await tab.look("document.querySelector('[name=who]').value") == "ada", "asked once"
    await tab.press("Escape")


async def test_it_drains_and_undrains_and_says_who(opened: Opened) -> None:
    tab = opened.tab
    for word in ("draining", "ready"):
        await tab.press("d")
        await opened.type_into("why", "kernel update")
        await opened.type_into("who", "ada")
        await tab.press("Enter")
        await tab.until("document.querySelector('#act-submit').textContent === 'Confirm'")
        await tab.press("Enter")
        await tab.until("!document.querySelector('#act[open]')")
        await opened.play(1, rate=5)
        assert await tab.text("#state-word") == word
    assert [entry.after for entry in opened.stage.journal.recent()] == [True, False]


async def test_one_of_several_engines_is_drained(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that the played service has, beside one that is only shown."""
    first = EngineLine(
        *("embedded", "vllm", "both", "up", 90.0, None, 3, 16, 0.25, 0.5, 40, 10, 2, 0, None)
    )
    out = msgspec.structs.replace(first, name="gpu-2", state="ejected", since=5.0, back_in=12.0)
    monkeypatch.setattr(picture, "engines", lambda desk, holds: (first, out))
    tab = opened.tab
    assert await tab.look("document.querySelector('#engines').hidden")
    await opened.play(1, rate=5)
    assert not await tab.look("document.querySelector('#engines').hidden")
    for words in ("up for 90 s", "3 / 16", "0.25 s", "25 %", "ejected for 5 s, back in 12 s"):
        assert words in await tab.text("#engine-rows")
    await tab.look("document.querySelector('#engine-rows button').click()")
    await tab.until("document.querySelector('#act[open]')")
    assert await tab.look("document.querySelector('[name=engine]').value") == "embedded"
    await opened.type_into("why", "driver")
    await opened.type_into("who", "ada")
    await tab.press("Enter")
    await tab.until("document.querySelector('#act-wrong').textContent")
    assert "no other engine takes requests" in await tab.text("#act-wrong")
    assert "409" in tab.problems.pop(), "the browser itself notes a failed request"
    await tab.look("document.querySelector('[name=force]').click()")
    await tab.press("Enter")
    await tab.until("document.querySelector('#act-submit').textContent === 'Confirm'")
    assert "embedded: taking requests → draining" in await tab.text("#act-change")
    await tab.press("Enter")
    await tab.until("!document.querySelector('#act[open]')")
    assert opened.stage.backend_drains.holds["embedded"].who == "ada"


async def test_what_is_refused_by_the_api_is_said(opened: Opened) -> None:
    await opened.tab.press("l")
    for name, text in (("value", "0"), ("why", "x"), ("who", "ada")):
        await opened.type_into(name, text)
    await opened.tab.press("Enter")
    await opened.tab.until("document.querySelector('#act-wrong').textContent")
    assert "allowed: 1 to 1000000" in await opened.tab.text("#act-wrong")
    assert opened.stage.journal.recent() == []
    assert "422" in opened.tab.problems.pop(), "the browser itself notes a failed request"


async def test_a_storm_is_seen_while_it_happens(opened: Opened, pictures: Path) -> None:
    await opened.play(10, rate=30)
    before = await opened.number("#served-rate")
    opened.stage.freeze(6)
    await opened.play(5, rate=40, tries=4)
    assert await opened.tab.text("#state-word") == "stalled"
    await opened.play(12, rate=40, tries=4)
    assert await opened.tab.text("#verdict-word") == "Clients: retries make up the load"
    assert "retry budget" in await opened.tab.text("#gate-rows")
    assert "retry budget" in await opened.tab.text("#refusal-rows")
    assert await opened.number("#arrivals-rate") > 2 * before
    for name, width, dark in (("light", 1440, False), ("dark", 1440, True), ("phone", 380, False)):
        await opened.tab.size(width, 900, dark=dark)
        await opened.play(1, rate=40, tries=4)
        size = await opened.tab.shoot(pictures / f"storm-{name}.png")
        assert size > 30_000, "an empty page is smaller"
        wide = await opened.tab.look("document.documentElement.scrollWidth")
        assert wide <= width, f"{name}: the page is {wide} px wide"


async def test_states_have_a_face(opened: Opened) -> None:
    opened.stage.die()
    await opened.play(2, rate=8)
    assert await opened.tab.text("#state-word") == "engine down"
    assert "alarm" in await opened.tab.look("document.querySelector('#engine').className")
    assert "backend down" in await opened.tab.text("#outcome-rows")
    opened.stage.feed.close()
    await opened.tab.until("document.body.dataset.link === 'lost'")
    assert "No connection to the sidecar" in await opened.tab.text("#banner")
    assert " s old" in await opened.tab.text("#banner")


async def test_the_theme_is_the_systems_until_one_is_chosen(opened: Opened) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await opened.tab.look(ground)
    await opened.tab.size(1440, 900, dark=True)
    dark = await opened.tab.look(ground)
    assert light != dark
    await opened.tab.press("t")
    assert await opened.tab.look(ground) == light


async def test_everything_has_a_name_and_shows_its_focus(opened: Opened) -> None:
    named = await opened.tab.look(
        "[...document.querySelectorAll('button')].every(b => b.ariaLabel || b.textContent.trim())"
    )
    assert named
    await opened.tab.press("Tab")
    assert await opened.tab.look("document.activeElement.className") == "skip"
    await opened.tab.press("Tab")
    assert await opened.tab.look("document.activeElement.dataset.act") == "limit"
    assert await opened.tab.look("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    await opened.tab.press("?")
    await opened.tab.until("document.querySelector('#help[open]')")
    keys = json.loads(
        await opened.tab.look(
            "JSON.stringify([...document.querySelectorAll('#keys kbd')].map(k => k.textContent))"
        )
    )
    assert {"?", "l", "d", "b", "t", "Esc"} <= set(keys)


async def test_nothing_moves_when_numbers_come(opened: Opened) -> None:
    await opened.tab.look(
        "window.moved = 0; new PerformanceObserver(list => list.getEntries().forEach(e => {"
        " window.moved += e.value; })).observe({type: 'layout-shift'})"
    )
    await opened.play(5, rate=60, tries=3)
    opened.stage.actions.set_limit("queue_requests", 9, ttl=60, who="ada", why="w" * 300)
    await opened.play(3, rate=60, tries=3)
    assert await opened.tab.look("window.moved") < 0.01


async def test_what_a_client_wrote_is_shown_and_not_run(opened: Opened) -> None:
    evil = "<img src=x onerror='window.evil=1'>"
    opened.stage.drain.begin("<b>ada</b>", evil, None)
    opened.stage.send(headers=[("x-request-id", "<script>window.evil=1</script>")])
    await opened.play(1, rate=5)
    assert evil in await opened.tab.text("#verdict-word")
    assert await opened.tab.look("window.evil") is None


async def test_a_token_is_asked_for_once(browser: Browser) -> None:
    stage = Stage()
    stage.play(3, rate=5)
    listener = AdminListener(create_app(stage, "s3cret"))
    port = await listener.start("127.0.0.1", 0)
    tab = await browser.tab()
    try:
        await tab.goto(f"http://127.0.0.1:{port}/")
        for attempt in ("wrong", "s3cret"):
            await tab.until("document.querySelector('#token[open]')")
            await tab.type(attempt)
            await tab.press("Enter")
            if attempt == "wrong":
                await tab.until("document.querySelector('#token-wrong').textContent")
        await tab.until(LIVE)
        await tab.goto(f"http://127.0.0.1:{port}/")
        await tab.until(LIVE)
        assert not await tab.look("document.querySelector('#token').open")
    finally:
        stage.feed.close()
        await asyncio.gather(tab.close(), listener.stop())
