"""One request's head: strict parsing of request line and headers, and how the body is framed."""

from dataclasses import dataclass, field

import httptools

from surgetank.admission.outcome import Refused, invalid
from surgetank.telemetry.vocabulary import Reason


@dataclass(slots=True)
class Head:
    """A request's line and headers, header names in lower case."""

    method: str
    path: str  # without the query
    headers: list[tuple[str, str]]
    http_1_0: bool
    keep_alive: bool
    content_length: int = 0
    chunked: bool = False
    expects_continue: bool = False

    def header(self, name: str) -> str:
        """The first header of that name, or ""."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""


@dataclass(slots=True)
class _Events:
    """What the parser tells while it reads."""

    target: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)
    complete: bool = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.complete = True


def parse_head(data: bytes) -> Head:
    """Read a whole head, its blank line included. Refused when anything in it is doubtful.

    llhttp rejects what lets two servers read one message differently: bare LF, folded or malformed
    headers, Content-Length repeated, signed or beside Transfer-Encoding (RFC 9112, 6.3 and 11.2).
    """
    events = _Events()
    parser = httptools.HttpRequestParser(events)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        # An offer to upgrade may be ignored (RFC 9110, 7.8): some clients offer h2c with every
        # request. CONNECT and the HTTP/2 preface are no offers.
        if not events.complete or parser.get_method() in (b"CONNECT", b"PRI"):
            raise _bad("HTTP/1.1 is spoken here, and no tunnels") from None
    except httptools.HttpParserError as error:
        raise _bad(f"malformed HTTP request: {error}") from None
    if not events.complete:
        raise _bad("malformed HTTP request: incomplete headers")
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise _bad(f"HTTP version is {version}; allowed: 1.0, 1.1")
    head = Head(
        method=parser.get_method().decode("latin-1"),
        path=_path(events.target),
        headers=events.headers,
        http_1_0=version == "1.0",
        keep_alive=version == "1.1",  # the parser forgets `close` when a message has no body
    )
    _read_framing(head)
    return head


def _path(target: bytes) -> str:
    if target.startswith((b"/", b"*")):
        return target.partition(b"?")[0].decode("latin-1")
    try:
        absolute = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise _bad("malformed HTTP request: the target is neither a path nor a URL") from None
    return (absolute.path or b"/").decode("latin-1")


def _read_framing(head: Head) -> None:
    """Where the body ends, and whether the client waits before it sends it."""
    hosts = 0
    for name, value in head.headers:
        if name == "content-length":
            head.content_length = int(value)
        elif name == "transfer-encoding":
            if value.strip().lower() != "chunked" or head.http_1_0:
                raise _bad("transfer-encoding: allowed: chunked, in HTTP/1.1")
            head.chunked = True
        elif name == "expect":
            if value.strip().lower() != "100-continue":
                raise _bad("expect: allowed: 100-continue")
            head.expects_continue = not head.http_1_0
        elif name == "connection" and "close" in value.lower().replace(" ", "").split(","):
            head.keep_alive = False
        elif name == "host":
            hosts += 1
    if hosts > 1 or (hosts == 0 and not head.http_1_0):
        raise _bad(f"host: sent {hosts} times; allowed: once")


def _bad(message: str) -> Refused:
    return invalid(Reason.BAD_REQUEST, message)
