"""The least that a proxy in Python can do: bytes go by on the same event loop, and nobody decides.

    python -m surgetank.control.bench.proxy.splice UPSTREAM PORT

What it costs is the floor under the sidecar's own figures. It is no proxy to use: it knows just the
bench's requests and answers, one at a time on a connection, and holds nobody back.
"""

import asyncio
import gc
import re
import sys
from typing import cast

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_BACKLOG = 4096


class _End(asyncio.Protocol):
    """One connection, whose bytes go to its peer."""

    peer: "_End | None" = None  # while a request runs

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            self.peer.transport.abort()


class _Engine(_End):
    """A kept connection to the stub."""

    def __init__(self, free: "list[_Engine]") -> None:
        self._free = free
        self._left: int | None = None  # bytes of a plain answer; None: its head is to come
        self._streams = False

    def send(self, client: _End, request: bytes) -> None:
        """Begin a request."""
        self.peer, client.peer = client, self
        self._left, self._streams = None, False
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            return
        self.peer.transport.write(data)
        if self._streams:
            over = data.endswith(_LAST_CHUNK)
        elif self._left is None:
            over = self._read_head(data)
        else:
            self._left -= len(data)
            over = self._left <= 0
        if over:
            self.peer.peer = None
            self.peer = None
            self._free.append(self)

    def _read_head(self, data: bytes) -> bool:
        """It comes in one piece. True when the answer is over."""
        head, _, body = data.partition(_HEAD_END)
        length = _LENGTH.search(head)
        self._streams = length is None
        self._left = 0 if length is None else int(length[1]) - len(body)
        return data.endswith(_LAST_CHUNK) if self._streams else self._left <= 0


class _Client(_End):
    """A client's connection."""

    def __init__(self, upstream: int, free: list[_Engine]) -> None:
        self._upstream = upstream
        self._free = free
        self._buffer = b""
        self._made: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, body = self._buffer.partition(_HEAD_END)
        length = _LENGTH.search(head)
        if not blank or len(body) < (int(length[1]) if length else 0):
            return
        request, self._buffer = self._buffer, b""
        if self._free:
            self._free.pop().send(self, request)
        else:
            self._made = asyncio.ensure_future(self._connect(request))

    async def _connect(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            lambda: _Engine(self._free), "127.0.0.1", self._upstream
        )
        made.send(self, request)


async def _serve(upstream: int, port: int) -> None:
    free: list[_Engine] = []
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: _Client(upstream, free), "127.0.0.1", port, backlog=_BACKLOG)
    gc.freeze()
    await loop.create_future()  # until it is killed


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
