"""Server-sent events to one reader, who may be slow, or gone without a word."""

import asyncio
import logging

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from surgetank.control.console.feed import Feed

logger = logging.getLogger(__name__)
PATIENCE = 10.0  # seconds that a reader may leave everything unread
MOST = 32  # readers at once
_HEADERS = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a proxy in between must not hold events back
}


class EventStream(StreamingResponse):
    """Ends when the reader leaves, takes nothing for `patience` seconds, or the feed closes.

    What was written and not taken is bounded by the server's own buffer: one frame at a time waits.
    """

    def __init__(self, feed: Feed, patience: float = PATIENCE) -> None:
        super().__init__(feed.follow(), headers=_HEADERS, media_type="text/event-stream")
        self._feed = feed
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one of the two is over."""
        self._feed.readers += 1
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except TimeoutError:
            logger.warning("console: a reader took nothing for %g s; dropped", self._patience)
        finally:
            self._feed.readers -= 1
            sending.cancel()
            leaving.cancel()
            await asyncio.wait({sending, leaving})

    async def _send(self, send: Send) -> None:
        headers, status = self.raw_headers, self.status_code
        await send({"type": "http.response.start", "status": status, "headers": headers})
        async for text in self.body_iterator:
            async with asyncio.timeout(self._patience):
                await send({"type": "http.response.body", "body": text, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    """Returns when the reader has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
