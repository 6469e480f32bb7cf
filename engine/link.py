"""The engine's end of the link: one unix socket, one sidecar at a time, nothing unbounded."""

import logging
import os
import selectors
import socket
import stat
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from surgetank.engine.api import Commands
from surgetank.engine.wire import FrameReader, WireError, decode_commands
from surgetank.telemetry.clock import Clock

logger = logging.getLogger(__name__)
READ_WRITE = selectors.EVENT_READ | selectors.EVENT_WRITE
READ_BYTES = 256 * 1024
READS_PER_DRAIN = 64  # a flood of commands must not keep the steps waiting


class LinkError(Exception):
    """The socket cannot be listened on; says where and why, in a sentence."""


@dataclass(slots=True)
class Arrived:
    """What came in since the last look."""

    commands: list[Commands] = field(default_factory=list)
    lost: bool = False  # the sidecar is gone; what it had asked for is nobody's wish any more


class Link:
    """Listens, greets whoever connects, and keeps at most `max_unsent` bytes and one output."""

    def __init__(
        self, path: Path, greeting: bytes, max_unsent: int, unread_timeout: float, clock: Clock
    ) -> None:
        """Raises LinkError, for example when another engine is listening there."""
        self._path = path
        self._greeting = greeting
        self._max_unsent = max_unsent
        self._unread_timeout = unread_timeout
        self._clock = clock
        self._peer: socket.socket | None = None
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._congested_since: float | None = None
        self._lost = False
        self._listener = _listen(path)
        self._waker, self._wakened = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for each in (self._listener, self._waker, self._wakened):
            each.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakened, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.drop("the engine stops")
        self._selector.close()
        for each in (self._listener, self._waker, self._wakened):
            each.close()
        self._path.unlink(missing_ok=True)

    @property
    def congested(self) -> bool:
        """The sidecar leaves so much unread that no more should be produced."""
        return len(self._unsent) > self._max_unsent

    def wake(self) -> None:
        """End a wait; from a signal handler or another thread."""
        try:
            self._waker.send(b"\0")
        except OSError as error:  # full: a wake-up is under way; closed: nobody sleeps any more
            logger.debug("no wake-up needed: %s", error)

    def receive(self, timeout: float | None) -> Arrived:
        """Wait up to `timeout` seconds (None: for ever) for something to happen, and handle it."""
        arrived = Arrived()
        ready = [key.fileobj for key, _ in self._selector.select(timeout)]
        if self._wakened in ready:
            self._wakened.recv(READ_BYTES)
        if self._peer is not None and self._peer in ready:  # before the listener: it may be gone
            self._flush()
            self._read(arrived)
        if self._listener in ready:
            self._accept()
        self._give_up_on_congestion()
        if self._lost:  # a new sidecar's commands can only come with the next look
            self._lost = False
            return Arrived(lost=True)
        return arrived

    def send(self, frame: bytes) -> None:
        """Pass a frame on; what the socket does not take now waits for the next receive()."""
        if self._peer is not None:
            self._unsent += frame
            self._flush()

    def _read(self, arrived: Arrived) -> None:
        for _ in range(READS_PER_DRAIN):
            if self._peer is None:
                return
            try:
                data = self._peer.recv(READ_BYTES)
                if data:
                    arrived.commands += map(decode_commands, self._reader.feed(data))
                else:
                    self.drop("the sidecar closed the connection")
            except BlockingIOError:
                return
            except (OSError, WireError) as error:
                self.drop(str(error))

    def _flush(self) -> None:
        if self._peer is None:
            return
        try:
            while self._unsent:
                del self._unsent[: self._peer.send(self._unsent)]
        except BlockingIOError:
            logger.debug("%d bytes wait for the sidecar to read", len(self._unsent))
        except OSError as error:
            self.drop(str(error))
            return
        self._selector.modify(self._peer, READ_WRITE if self._unsent else selectors.EVENT_READ)
        if not self.congested:
            self._congested_since = None
        elif self._congested_since is None:
            self._congested_since = self._clock.monotonic()

    def _give_up_on_congestion(self) -> None:
        since = self._congested_since
        if since is not None and self._clock.monotonic() - since > self._unread_timeout:
            self.drop(f"{len(self._unsent)} bytes unread for {self._unread_timeout:g} s")

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError as error:  # gone again, or out of file descriptors
            logger.warning("no connection accepted: %s", error)
            return
        if self._peer is not None:
            logger.warning("a second sidecar was turned away: one at a time")
            peer.close()
            return
        logger.info("a sidecar connected")
        peer.setblocking(False)
        self._peer = peer
        self._selector.register(peer, selectors.EVENT_READ)
        self.send(self._greeting)

    def drop(self, why: str) -> None:
        """End the connection; the next receive() tells that it was lost."""
        if self._peer is None:
            return
        logger.warning("connection to the sidecar ended: %s", why)
        self._selector.unregister(self._peer)
        self._peer.close()
        self._peer = None
        self._reader = FrameReader()
        self._unsent.clear()
        self._congested_since = None
        self._lost = True


def _listen(path: Path) -> socket.socket:
    """A listening socket at `path`, only for this user; a dead process's file there is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clear(path)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        listener.listen(8)
    except LinkError:
        listener.close()
        raise
    except OSError as error:
        listener.close()
        raise LinkError(f"socket {path}: {error.strerror or error}") from error
    return listener


def _clear(path: Path) -> None:
    """Make way at `path`, unless something lives there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise LinkError(f"socket {path}: a file that is no socket is in the way")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise LinkError(f"socket {path}: another engine is listening there; stop it first")
