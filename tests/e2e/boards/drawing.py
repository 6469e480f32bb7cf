"""Draws a board with Grafana's components in a real Chromium: a page from it, a PNG of that."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from tests.control.console.browser import Browser
from tests.e2e.prometheus_server import Document

SCRIPTS = Path(__file__).parents[3] / "tools" / "boards" / "dist"
WIDTH, SCREEN = 1600, 1000  # CSS pixels
_EMPTY = "[...document.querySelectorAll('[data-empty]')].map(panel => panel.dataset.empty)"


@dataclass(frozen=True, slots=True)
class Drawn:
    """What came of it: panels without data, by title, and what the browser complained of."""

    empty: frozenset[str]
    problems: tuple[str, ...]


def built() -> bool:
    """Whether the page's scripts are there; they are no part of the repository."""
    return (SCRIPTS / "board.js").exists()


def _page(board: Document, theme: str) -> str:
    shown = board | {
        "theme": theme,
        "width": WIDTH,
        "variables": {"instance": "All", "model": "All"},
    }
    data = json.dumps(shown).replace("</", "<\\/")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<link rel="stylesheet" href="{(SCRIPTS / "board.css").as_uri()}">'
        f'<body><div id="board"></div><script>window.BOARD = {data}</script>'
        f'<script src="{(SCRIPTS / "board.js").as_uri()}"></script></body></html>'
    )


async def draw(
    browser: Browser,
    board: Document,
    png: Path,
    folder: Path,
    *,
    top: bool = False,
    theme: str = "dark",
) -> Drawn:
    """Write `png`: the whole board, as high as it is; with `top` also NAME-top.png, its first
    SCREEN. `folder` is for the page."""
    page = folder / f"{png.stem}.html"
    page.write_text(_page(board, theme), "utf-8")
    tab = await browser.tab()
    await tab.size(WIDTH, SCREEN, dark=theme == "dark")
    await tab.goto(page.as_uri())
    await tab.until("document.body.dataset.drawn")
    height = await tab.look("document.documentElement.scrollHeight")
    await tab.size(WIDTH, height, dark=theme == "dark")
    await tab.shoot(png)
    if top:
        first = {"x": 0, "y": 0, "width": WIDTH, "height": min(SCREEN, height), "scale": 1}
        shot = await tab.call("Page.captureScreenshot", clip=first)
        png.with_stem(f"{png.stem}-top").write_bytes(base64.b64decode(shot["data"]))
    empty = await tab.look(
        "[...document.querySelectorAll('[data-empty]')].map(e => e.dataset.empty)"
    )
    drawn = Drawn(frozenset(empty), tuple(tab.problems))
    await tab.close()
    return drawn
