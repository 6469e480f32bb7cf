"""Listener: an engine's own answer goes to the client byte for byte."""

from collections.abc import Callable

from surgetank.admission.api import End
from surgetank.admission.doors.http.exchange import Exchange
from surgetank.engine.backends.remote.api import AnswerHead

# They speak of the connection between the engine and us (RFC 9110, 7.6.1), or are ours to set.
_NOT_PASSED = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "x-request-id",
    }
)


class RelayAnswer:
    """Implements relay.RelayListener.

    The head waits for the body's first bytes, so that a request lost before them still gets an
    error of its own. After them, an error is one more event of a stream that can still take one;
    else the connection is cut, which is how a client sees that an answer is not whole.
    """

    __slots__ = (
        "_can_add",
        "_events",
        "_exchange",
        "_head",
        "_sent",
    )

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._head = b""
        self._sent = False
        self._can_add = False  # an event of ours
        self._events = False  # it is a chunked stream of events

    def on_head(self, head: AnswerHead) -> None:
        passed = [(name, value) for name, value in head.headers if name not in _NOT_PASSED]
        chunked = bool(head.header("transfer-encoding"))
        self._events = chunked and head.header("content-type").startswith("text/event-stream")
        framed = chunked or bool(head.header("content-length")) or head.status in (204, 304)
        self._head = self._exchange.start_splice(head.status, passed, framed)

    def on_data(self, data: bytes, between: bool) -> None:
        self._can_add = between
        self._exchange.splice(data if self._sent else self._head + data)
        self._sent = True

    def direct(self) -> Callable[[bytes], None] | None:
        return self._exchange.direct() if self._sent and self._can_add else None

    def on_end(self, end: End, complete: bool) -> None:
        if complete or end.refusal is None:
            if not self._sent:
                self._exchange.splice(self._head)
            self._exchange.end_splice()
        elif not self._sent:
            self._exchange.refuse(end.refusal)
        elif self._events and self._can_add:
            exchange = self._exchange
            event = exchange.words.last_event(end.refusal, exchange.request_id)
            self._exchange.splice(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))
            self._exchange.end_splice()
        else:
            self._exchange.cut()
