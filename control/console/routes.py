"""The console's routes on the admin API: the page, its files, and what it follows."""

from pathlib import Path

from fastapi import FastAPI, HTTPException
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surgetank.control.console.feed import Feed
from surgetank.control.console.stream import MOST, EventStream

FILES = Path(__file__).parent / "static"
# Everything comes from here, nothing is inline: what a client wrote is text, and never runs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # asks each time, so that an update is seen; the ETag saves bytes
}


def add_console(app: FastAPI, feed: Feed) -> None:
    """The page at / and /console/, which holds no secret and so asks for no token; what it follows
    and calls does."""

    @app.get("/console/stream", include_in_schema=False)
    async def stream() -> EventStream:
        """The history, then a frame a second."""
        if feed.readers >= MOST:
            raise HTTPException(503, f"{MOST} consoles are open already; close one")
        return EventStream(feed)

    app.mount("/console", _WithHeaders(StaticFiles(directory=FILES, html=True)))
    for path in ("/", "/console"):
        app.add_route(path, _to_page, include_in_schema=False)


async def _to_page(_: Request) -> RedirectResponse:
    """Relative, so that it holds behind a proxy's prefix, too."""
    return RedirectResponse("console/")


class _WithHeaders:
    """Puts the page's headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with)
