"""What the desk tells of one request, held until the door's task takes it."""

import asyncio
from collections.abc import Callable

from surgetank.admission.api import Delta, End


class Inbox:
    """A Listener that gathers: news that came while the last was being sent go out as one.

    `limit`: tokens that may wait unread; past it `overflow` is called, once, on a later turn of
    the event loop, since a listener must not act on its call from within. None: no limit.
    """

    def __init__(self, limit: int | None, overflow: Callable[[], None]) -> None:
        self.end: End | None = None
        self._limit = limit
        self._overflow = overflow
        self._pending: list[Delta] = []
        self._unread = 0
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def on_delta(self, delta: Delta) -> None:
        """New output."""
        self._pending.append(delta)
        self._unread += len(delta.token_ids)
        self._news.set()
        if self._limit is not None and self._unread > self._limit:
            self._limit = None
            self._loop.call_soon(self._overflow)

    def on_end(self, end: End) -> None:
        """The one end; what is pending can still be taken."""
        self.end = end
        self._news.set()

    async def take(self) -> list[Delta]:
        """Everything new, waiting for something to be; empty once all is taken and ended."""
        while not self._pending and self.end is None:
            self._news.clear()
            await self._news.wait()
        taken, self._pending, self._unread = self._pending, [], 0
        return taken
