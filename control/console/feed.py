"""What readers of the console follow: the newest frame, and the charts' last ten minutes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import zip_longest

import msgspec

from surgetank.control.console.frame import Frame, Point

KEEP = 600  # points
TOO_MANY = 10  # frames that a reader may miss before the charts are sent anew
_encoder = msgspec.json.Encoder()


def event(name: str, data: bytes) -> bytes:
    """A server-sent event; JSON has no bare newline."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


class Feed:
    """Each frame is encoded once, for all readers. On the event loop's thread."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=KEEP)
        self._newest: tuple[int, bytes] | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self.readers = 0

    def publish(self, frame: Frame) -> None:
        """Give it to everybody who follows, and keep its point."""
        self._points.append(frame.point)
        self._newest = (frame.number, event("frame", _encoder.encode(frame)))
        self._wake()

    def close(self) -> None:
        """End what everybody follows."""
        self._closed = True
        self._wake()

    async def follow(self) -> AsyncIterator[bytes]:
        """The history, then each frame as it comes; who is slow misses frames, and gets the newest
        one next."""
        seen = 0
        yield event("history", self.history())
        while not self._closed:
            if self._newest is None or self._newest[0] == seen:
                await self._changed.wait()
                continue
            number, text = self._newest
            if seen and number - seen > TOO_MANY:
                yield event("history", self.history())
            seen = number
            yield text

    def history(self) -> bytes:
        """The points by column, oldest first."""
        names = Point.__struct_fields__
        rows = (tuple(getattr(point, name) for name in names) for point in self._points)
        columns = list(zip_longest(*rows)) or [()] * len(names)
        return _encoder.encode(dict(zip(names, columns)))

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
