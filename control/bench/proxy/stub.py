"""An engine of answers rendered beforehand, far cheaper than any proxy: what it costs is noise.

    python -m surgetank.control.bench.proxy.stub      says its port; ends when its stdin does

Streams of one pace get their events together, as those of one engine step do.
"""

import asyncio
import os
import re
import sys
from functools import partial
from typing import cast

import uvloop

from surgetank.control.bench.proxy.wire import (
    AT_ONCE,
    MODEL,
    MOST,
    NEVER,
    WIDE,
    event,
    last,
    page,
    plain,
)

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EVENTS = re.compile(rb'"max_tokens": *(\d+)')
_GAP = re.compile(rb'"seed": *(\d+)')
_STREAM = re.compile(rb'"stream": *true')
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_PLAIN = plain()
_EVENT = [event(number) for number in range(MOST)]
_WIDE_EVENT = [event(number, WIDE) for number in range(MOST)]
_MODELS = page({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "bench"}]})
_WELL = page({})
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
_BACKLOG = 4096


class Beat:
    """The steps of one pace: each gives every stream its next event."""

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._loop = asyncio.get_running_loop()
        self._streams: set[Connection] = set()

    def join(self, stream: "Connection") -> None:
        """From the next step on."""
        if not self._streams:
            self._loop.call_later(self._gap, self._step, self._loop.time() + self._gap)
        self._streams.add(stream)

    def leave(self, stream: "Connection") -> None:
        """It hung up."""
        self._streams.discard(stream)

    def _step(self, due: float) -> None:
        for stream in list(self._streams):
            if not stream.speak():
                self._streams.discard(stream)
        if self._streams:
            following = max(due + self._gap, self._loop.time())
            self._loop.call_at(following, self._step, following)


class Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, beats: dict[int, Beat]) -> None:
        self._beats = beats
        self._beat: Beat | None = None
        self._buffer = b""
        self._next = self._events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._beat is not None:
            self._beat.leave(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = self._buffer[:end]
        length = _LENGTH.search(head)
        end += int(length[1]) if length else 0
        if len(self._buffer) < end:
            return
        request, self._buffer = self._buffer[:end], self._buffer[end:]
        if request.startswith(b"POST "):
            self._answer(request)
        else:
            path = head.split(b" ", 2)[1]
            known = {b"/v1/models": _MODELS, b"/health": _WELL}
            self._transport.write(known.get(path, _NOT_FOUND))

    def speak(self) -> bool:
        """The next event; False after the last."""
        self._transport.write(_EVENT[self._next])
        self._next += 1
        if self._next < self._events:
            return True
        self._transport.write(last(self._events))
        self._beat = None
        return False

    def _answer(self, request: bytes) -> None:
        events, gap = _EVENTS.search(request), _GAP.search(request)
        if not _STREAM.search(request) or events is None or gap is None:
            self._transport.write(_PLAIN)
            return
        self._events, self._next, pace = int(events[1]), 1, int(gap[1])
        self._transport.write(_HEAD + _EVENT[0])
        if pace == AT_ONCE:
            self._transport.write(b"".join(_WIDE_EVENT[1 : self._events]) + last(self._events))
        elif pace < NEVER:
            self._beat = self._beats.get(pace) or self._beats.setdefault(pace, Beat(pace / 1e6))
            self._beat.join(self)


async def _serve() -> None:
    loop, over, beats = asyncio.get_running_loop(), asyncio.Event(), dict[int, Beat]()
    listener = await loop.create_server(
        partial(Connection, beats), "127.0.0.1", 0, backlog=_BACKLOG
    )
    sys.stdout.write(f"{listener.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()
    os._exit(0)  # thousands of streams may be open: nobody waits for their ends


if __name__ == "__main__":
    uvloop.run(_serve())
