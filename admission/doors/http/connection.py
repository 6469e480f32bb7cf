"""One client's connection: requests in, one at a time, under deadlines; answers out."""

import asyncio
import math
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

from surgetank.admission.doors.http.body import Body, ChunkedBody, SizedBody
from surgetank.admission.doors.http.exchange import Exchange, Handler, refuse_unread
from surgetank.admission.doors.http.head import parse_head
from surgetank.admission.doors.http.refusals import (
    body_too_large,
    body_too_late,
    headers_too_large,
    headers_too_late,
    no_http,
    stopping,
)
from surgetank.admission.doors.http.shared import Shared
from surgetank.admission.outcome import Refusal, Refused
from surgetank.telemetry.vocabulary import Reason

NEVER = math.inf
_NO_BODY = SizedBody(0)


class Phase(Enum):
    """What the connection waits for."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()  # bytes of a next request wait in the buffer
    LINGER = auto()  # refused: read the rest away, lest a reset overtakes the answer
    CLOSED = auto()


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive and pipelining; a pipelined request waits for the answer before it.

    A client that ends its sending side while it waits for an answer counts as gone. A client that
    died looks the same, and no HTTP library that is waiting half-closes; computing on for the rare
    script that does would waste the engine on all the others.
    """

    __slots__ = (
        "_advancing",
        "_body",
        "_buffer",
        "_config",
        "_due",
        "_exchange",
        "_handler",
        "_peer",
        "_phase",
        "_reading",
        "_reserved",
        "_searched",
        "_shared",
        "_slow_due",
        "_surplus",
        "_transport",
        "_unsent_then",
    )

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._config = shared.config
        self._phase = Phase.HEAD
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer known not to end a head
        self._due = NEVER  # when the phase has lasted too long
        self._slow_due = NEVER  # when unsent bytes have waited too long
        self._unsent_then = 0  # how many they were when that was set
        self._advancing = False
        self._reading = True
        self._reserved = 0
        self._body: Body = _NO_BODY
        self._exchange: Exchange | None = None  # set, with the handler, from head to answer
        self._handler: Handler | None = None
        self._surplus: Refusal | None = None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's: no isinstance here.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._config.write_buffer_bytes)
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if isinstance(address, tuple) else str(address)
        self._surplus = self._shared.admit(self, self._peer)
        self._due = self._now() + self._config.header_timeout
        if len(self._shared.connections) > 2 * self._config.max_connections:
            self._shared.on_unread(Reason.CONNECTIONS)
            self.abort()  # too many even to be turned away with a word

    def data_received(self, data: bytes) -> None:
        if self._phase in (Phase.LINGER, Phase.CLOSED):
            return
        if self._phase is Phase.HEAD and not self._buffer:
            self._due = self._now() + self._config.header_timeout
        self._buffer += data
        self._advance()

    def eof_received(self) -> None:
        if self._handler is not None:
            self._lose(Reason.CLIENT_GONE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(Reason.CLIENT_GONE)
        self._shared.release(self, self._peer)

    def pause_writing(self) -> None:
        self._watch_reader(self._now())
        if self._exchange is not None:
            self._exchange.on_behind(True)

    def resume_writing(self) -> None:
        self._slow_due = NEVER
        if self._exchange is not None:
            self._exchange.on_behind(False)
        if self._phase is Phase.HEAD:
            self._next_head()

    # the exchange's side

    def send(self, data: bytes) -> None:
        behind = self._slow_due is not NEVER
        self._transport.write(data)
        if behind and self.unsent > self._config.max_write_buffer_bytes:
            self._slow_due = -NEVER  # the next sweep ends it: not amid the desk's own call

    def direct(self) -> Callable[[bytes], None] | None:
        return self._transport.write if self._slow_due is NEVER else None

    def answered(self, keep_alive: bool) -> None:
        self._exchange = self._handler = None
        self.free_body()
        if self._phase is not Phase.ANSWER:
            self._linger()
        elif keep_alive:
            self._phase = Phase.HEAD
            self._next_head()
        else:
            self._linger() if self._buffer else self._close()

    def cut(self) -> None:
        self._exchange = self._handler = None
        self.free_body()
        self.abort()

    def free_body(self) -> None:
        self._shared.free(self._reserved)
        self._reserved = 0
        self._body = _NO_BODY

    def will_close(self) -> bool:
        return self._phase is not Phase.ANSWER or self._shared.draining or self._surplus is not None

    # the server's side

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def sweep(self, now: float) -> None:
        taken = self._unsent_then - self.unsent
        if -NEVER < self._slow_due < NEVER and taken >= self._config.write_buffer_bytes:
            self._watch_reader(now)  # slow, but reading: a long answer may take its time
        if now >= self._slow_due:
            self._lose(Reason.SLOW_READER)
        elif now >= self._due and self._slow_due is NEVER:
            self._expire()

    def drain(self) -> None:
        if self._phase is Phase.HEAD and not self._buffer:
            self._close()

    def shut(self) -> None:
        if self._handler is None:
            self._close()
        else:
            self._handler.on_refuse(stopping())

    def abort(self) -> None:
        self._phase = Phase.CLOSED
        self._due = self._slow_due = NEVER
        self._transport.abort()

    # reading

    def _next_head(self) -> None:
        """Wait for a request, or take the one that came meanwhile."""
        wait = self._config.header_timeout if self._buffer else self._config.idle_timeout
        self._due = self._now() + wait
        self._read_on()
        if self._buffer:
            self._advance()

    def _advance(self) -> None:
        """Work through the buffer. A request answered on the spot frees the way for the next,
        unless the client is behind with reading answers."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while (self._phase is Phase.HEAD and self._slow_due is NEVER and self._read_head()) or (
                self._phase is Phase.BODY and self._read_body()
            ):
                pass
        except Refused as refused:
            self._refuse(refused.refusal)
        finally:
            self._advancing = False
        waits = self._phase is Phase.ANSWER or self._slow_due is not NEVER
        if waits and self._reading and len(self._buffer) > self._config.max_header_bytes:
            self._reading = False  # the next requests have to wait in the socket
            self._transport.pause_reading()

    def _read_head(self) -> bool:
        """True when a head was complete and the request begun."""
        buffer, limit = self._buffer, self._config.max_header_bytes
        while buffer.startswith(b"\r\n"):  # some clients end a body with one (RFC 9112, 2.2)
            del buffer[:2]
            self._searched = 0
        end = buffer.find(b"\r\n\r\n", max(0, self._searched - 3)) + 4
        if end < 4:
            self._check_partial_head(limit)
            return False
        if end > limit:
            raise Refused(headers_too_large(end, limit))
        self._searched = 0
        data = bytes(buffer[:end])
        del buffer[:end]
        self._begin(Exchange(self, parse_head(data), self._shared.new_id, self._peer))
        return True

    def _check_partial_head(self, limit: int) -> None:
        buffer = self._buffer
        if len(buffer) > limit:
            raise Refused(headers_too_large(len(buffer), limit))
        new = self._searched
        if buffer and buffer != b"\r" and not buffer[:1].isalpha():
            raise Refused(no_http())
        if buffer.count(b"\n", new) != buffer.count(b"\r\n", max(0, new - 1)):
            parse_head(bytes(buffer))  # a bare line feed: llhttp says which
        self._searched = len(buffer)

    def _begin(self, exchange: Exchange) -> None:
        head, config = exchange.head, self._config
        self._phase = Phase.BODY
        self._due = self._now() + config.body_timeout
        self._body = (
            ChunkedBody(config.max_body_bytes) if head.chunked else SizedBody(head.content_length)
        )
        self._exchange = exchange
        self._handler = handler = self._shared.open_request(exchange)
        if self._surplus is not None and not handler.vital:
            raise Refused(self._surplus)
        if (barred := handler.barred) is not None:
            raise Refused(barred)
        if head.content_length > config.max_body_bytes:
            raise Refused(body_too_large(head.content_length, config.max_body_bytes))
        if head.expects_continue and not self._buffer:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _read_body(self) -> bool:
        """True when the body was complete and the request handed on."""
        if not self._body.take(self._buffer):
            self._reserve(len(self._body.data) - self._reserved)
            return False
        body, self._body = bytes(self._body.data), _NO_BODY
        self._phase = Phase.ANSWER
        self._due = NEVER
        if self._handler is not None:
            self._handler.on_body(body)
        return True

    def _reserve(self, size: int) -> None:
        refusal = self._shared.reserve(size)
        if refusal is not None:
            raise Refused(refusal)
        self._reserved += size

    # ending

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that will not be read to its end, and close."""
        if self._handler is not None:
            self._handler.on_refuse(refusal)
            return
        self._shared.on_unread(refusal.reason)
        self._transport.write(refuse_unread(refusal, self._shared.new_id()))
        self._linger()

    def _expire(self) -> None:
        if self._phase is Phase.HEAD and self._buffer:
            self._refuse(headers_too_late(self._config.header_timeout))
        elif self._phase is Phase.BODY:
            self._refuse(body_too_late(self._config.body_timeout))
        elif self._phase is Phase.CLOSED:
            self.abort()  # its last bytes were never taken
        else:
            self._close()

    def _lose(self, reason: Reason) -> None:
        """Nobody reads any more, or too slowly: end the request and the connection."""
        exchange, handler = self._exchange, self._handler
        self._exchange = self._handler = None
        self.free_body()
        self.abort()
        if exchange is not None and handler is not None:
            exchange.leave()
            handler.on_gone(reason)

    def _linger(self) -> None:
        self._phase = Phase.LINGER
        self._due = self._now() + self._config.linger_timeout
        self._buffer.clear()
        self._read_on()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def _close(self) -> None:
        self._phase = Phase.CLOSED
        self._due = self._now() + self._config.slow_reader_timeout
        self._transport.close()

    def _watch_reader(self, now: float) -> None:
        self._slow_due = now + self._config.slow_reader_timeout
        self._unsent_then = self.unsent

    def _read_on(self) -> None:
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _now(self) -> float:
        return self._shared.clock.monotonic()
