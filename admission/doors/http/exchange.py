"""One request and its answer, as the code behind the connection holds it."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Protocol

from surgetank.admission.doors.http.errors import error_body, error_headers
from surgetank.admission.doors.http.head import Head
from surgetank.admission.doors.http.wording import Wording, wording_of
from surgetank.admission.outcome import Refusal
from surgetank.telemetry.vocabulary import Reason

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
Pairs = Iterable[tuple[str, str]]
OnBehind = Callable[[bool], None]
TellLoad = Callable[[Head], Pairs]  # headers that say how busy we are, as the request wants it

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_STATUS_LINES[499] = b"HTTP/1.1 499 Client Closed Request\r\n"
_STATUS_LINES[529] = b"HTTP/1.1 529 Overloaded\r\n"


class Handler(Protocol):
    """What answers one request: on_body or on_refuse comes first, unless the client goes away."""

    @property
    def vital(self) -> bool:
        """Answered on surplus connections too."""

    @property
    def barred(self) -> Refusal | None:
        """How to answer by the headers alone; None: the body is wanted."""

    def on_body(self, body: bytes) -> None:
        """The request is whole: answer it, now or later."""

    def on_refuse(self, refusal: Refusal) -> None:
        """Answer so, now: the request will not be read to its end, or the server stops."""

    def on_gone(self, reason: Reason) -> None:
        """There is nobody to answer any more. Nothing comes after this."""


class Wire(Protocol):
    """The connection under an exchange."""

    def send(self, data: bytes) -> None:
        """Hand bytes to the transport; a client that does not read them is cut off."""

    def direct(self) -> Callable[[bytes], None] | None:
        """The transport's own write(), while the client keeps up; None: send() has to see it."""

    def free_body(self) -> None:
        """The body's bytes were worked off: they count no more against the door's budget."""

    def answered(self, keep_alive: bool) -> None:
        """The answer is complete: go on to the next request, or close."""

    def cut(self) -> None:
        """Close at once, in the middle of the answer."""

    def will_close(self) -> bool:
        """Whether the connection cannot be used for another request."""


def tell_no_load(head: Head) -> Pairs:
    """Nobody asked."""
    return ()


def _nobody_asks(behind: bool) -> None:
    """Told to no one."""


class Exchange:
    """Writes one answer: whole, or as a stream of parts. Does nothing once the client is gone."""

    __slots__ = (
        "_keep_alive",
        "_new_id",
        "_wire",
        "head",
        "load",
        "named",
        "on_behind",
        "open",
        "peer",
    )

    def __init__(self, wire: Wire, head: Head, new_id: Callable[[], str], peer: str = "") -> None:
        self.head = head
        self.peer = peer  # the address that sends it
        self.named = ""  # its ticket's id
        self.open = True  # until answered, or the client went away
        self.on_behind: OnBehind = _nobody_asks  # it reads too slowly, or does again
        self.load: TellLoad = tell_no_load
        self._new_id = new_id
        self._wire = wire
        self._keep_alive = False

    @property
    def request_id(self) -> str:
        """Its ticket's id; what has no ticket gets one of its own."""
        self.named = self.named or self._new_id()
        return self.named

    @property
    def words(self) -> Wording:
        """How its path tells a refusal."""
        return wording_of(self.head.path)

    def respond(
        self, status: int, body: bytes, content_type: str = JSON, headers: Pairs = ()
    ) -> None:
        """The whole answer at once."""
        if self.open:
            framing = [("content-type", content_type), ("content-length", str(len(body)))]
            head = self._head(status, framing, headers)
            self._wire.send(head if self.head.method == "HEAD" else head + body)
            self._finish()

    def refuse(self, refusal: Refusal) -> None:
        """The whole answer, when it is a refusal."""
        words, named = self.words, self.request_id
        headers = words.headers(refusal, named)
        self.respond(words.status(refusal), words.body(refusal, named), headers=headers)

    def start_stream(self) -> bytes:
        """The head of a stream of events, for the caller to send with its first part."""
        framing = [("content-type", EVENTS), ("cache-control", "no-cache")]
        framing.append(("x-accel-buffering", "no"))  # nginx would collect the events
        if not self.head.http_1_0:
            framing.append(("transfer-encoding", "chunked"))
        return self._head(200, framing)

    def send_part(self, data: bytes, head: bytes = b"") -> None:
        """One part of a stream, in one write."""
        if self.open:
            self._wire.send(head + self._framed(data))

    def end_stream(self, data: bytes, head: bytes = b"") -> None:
        """The stream's last part and its end."""
        if self.open:
            end = b"" if self.head.http_1_0 else b"0\r\n\r\n"
            self._wire.send(head + self._framed(data) + end)
            self._finish()

    def start_splice(self, status: int, headers: list[tuple[str, str]], framed: bool) -> bytes:
        """The head of an answer whose body comes framed as `headers` say, for the caller to send;
        not `framed`: the body ends where the connection does."""
        self._keep_alive = self.head.keep_alive and framed and not self._wire.will_close()
        named = [*headers, ("x-request-id", self.request_id), *self.load(self.head)]
        return _response_head(status, named, self._keep_alive)

    def splice(self, data: bytes) -> None:
        """Bytes that are framed already."""
        if self.open:
            self._wire.send(data)

    def direct(self) -> Callable[[bytes], None] | None:
        """Where such bytes may be written past splice(), until on_behind() or the end; None: the
        client is behind with reading, or gone."""
        return self._wire.direct() if self.open else None

    def end_splice(self) -> None:
        """All of it was sent."""
        if self.open:
            self._finish()

    def cut(self) -> None:
        """What was begun cannot be completed, and the client must see that."""
        if self.open:
            self.leave()
            self._wire.cut()

    def free_body(self) -> None:
        """Tell the connection that nobody holds the request's body any more."""
        if self.open:
            self._wire.free_body()

    def leave(self) -> None:
        """Nothing more is written. Whoever was told of slow reading is let go of: it holds us, and
        a ring of objects would be left to the garbage collector, whose pauses all requests feel."""
        self.open = False
        self.on_behind = _nobody_asks

    def _framed(self, data: bytes) -> bytes:
        return data if self.head.http_1_0 else b"%x\r\n%b\r\n" % (len(data), data)

    def _head(self, status: int, framing: list[tuple[str, str]], headers: Pairs = ()) -> bytes:
        streams_to_end = self.head.http_1_0 and framing[0][1] == EVENTS
        self._keep_alive = (
            self.head.keep_alive and not streams_to_end and not self._wire.will_close()
        )
        named = [*framing, ("x-request-id", self.request_id), *self.load(self.head), *headers]
        return _response_head(status, named, self._keep_alive)

    def _finish(self) -> None:
        self.leave()
        self._wire.answered(self._keep_alive)


def refuse_unread(refusal: Refusal, request_id: str) -> bytes:
    """The whole answer to what was no readable request; nothing can follow it."""
    body = error_body(refusal)
    framing = [("content-type", JSON), ("content-length", str(len(body)))]
    headers = [*framing, ("x-request-id", request_id), *error_headers(refusal)]
    return _response_head(refusal.http_status, headers, keep_alive=False) + body


def _response_head(status: int, headers: Pairs, keep_alive: bool) -> bytes:
    """Status line and headers, up to the blank line. Values must be free of line breaks."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    connection = b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
    first = _STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()
    return first + lines.encode("latin-1", "replace") + connection
