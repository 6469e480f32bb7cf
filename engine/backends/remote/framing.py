"""Where an HTTP answer's body ends, found while its bytes go by untouched (RFC 9112, 6 and 7)."""

from typing import Protocol

_LONGEST_LINE = 1024  # bytes of a chunk's size line, or of one trailer
_SIZES = {b"%x" % size: size for size in range(1, 4096)}  # as engines write an event's chunk
_EVENT = b"\ndata:"  # JSON holds no bare line feed, so this begins an event and nothing else
# On these paths most kinds of events bear no output; those that do say so, once each: in a text
# the quotation mark would be escaped.
_OUTPUT = {"/v1/messages": b'"content_block_delta"', "/v1/responses": b'.delta"'}


def is_chunk(data: bytes) -> bool:
    """Whether these bytes are one whole chunk, as an event nearly always comes."""
    feed = data.find(b"\r\n")
    return _SIZES.get(data[:feed]) == len(data) - feed - 4


class FramingError(ValueError):
    """The body's framing cannot be read."""


class Framing(Protocol):
    """Follows one body."""

    complete: bool
    between: bool  # the bytes so far end between two chunks: another may be put in

    def take(self, data: bytes) -> int:
        """How many of the next bytes are the body's. Raises FramingError."""


class Sized:
    """Content-Length bytes."""

    between = False

    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = length == 0

    def take(self, data: bytes) -> int:
        """Bytes beyond the length are another answer's."""
        taken = min(self._left, len(data))
        self._left -= taken
        self.complete = self._left == 0
        return taken


class UntilClose:
    """Everything until the other side closes."""

    complete = False
    between = False

    def take(self, data: bytes) -> int:
        """All of it."""
        return len(data)


class Chunked:
    """Chunks, skipped over by their sizes."""

    __slots__ = (
        "_line",
        "_skip",
        "_trailers",
        "between",
        "complete",
    )

    def __init__(self) -> None:
        self.complete = False
        self.between = True
        self._skip = 0  # bytes of the chunk still to come, its CRLF included
        self._line = b""  # of a size line or trailer, what has come
        self._trailers = False

    def take(self, data: bytes) -> int:
        """Bytes beyond the last chunk's trailers are another answer's."""
        if self.between and is_chunk(data):
            return len(data)
        taken = self._follow(data)
        self.between = not (self._skip or self._line or self._trailers)
        return taken

    def _follow(self, data: bytes) -> int:
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            feed = data.find(b"\n", at)
            if feed < 0 or feed - at > _LONGEST_LINE:
                self._line += data[at : at + _LONGEST_LINE + 1]
                if len(self._line) > _LONGEST_LINE:
                    raise FramingError("a chunk's size line does not end")
                return end
            line = (self._line + data[at:feed]).removesuffix(b"\r")
            self._line, at = b"", feed + 1
            if not self._trailers:
                self._open(line)
            elif not line:
                self.complete = True
                break
        return at

    def _open(self, line: bytes) -> None:
        digits = line.partition(b";")[0].strip(b" \t")
        if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
            raise FramingError("a chunk's size is not a hexadecimal number")
        size = int(digits, 16)
        self._trailers = size == 0
        self._skip = size + 2 if size else 0


class EventCount:
    """Counts the events of a stream that bear output, in bytes that go by."""

    __slots__ = ("_before", "_rests", "_seam", "mark")

    def __init__(self, path: str = "") -> None:
        """`path` as it was asked: on most, every line that begins with `data:` counts."""
        self.mark, self._rests, self._seam = _MARKS.get(path, _ANY)
        self._before = b"\n"  # the bytes before: a mark may be cut in two

    def count(self, data: bytes) -> int:
        """How many of their marks end in these bytes."""
        found, seam = data.count(self.mark), self._seam
        if data.startswith(self._rests):
            found += (self._before[-seam:] + data[:seam]).count(self.mark)
        self._before = data if len(data) >= seam else self._before[-seam:] + data
        return found


def _mark(text: bytes) -> tuple[bytes, tuple[bytes, ...], int]:
    """What stands once in an event, what may come of it after a cut, and bytes before such a cut at
    the most."""
    return text, tuple(text[cut:] for cut in range(1, len(text))), len(text) - 1


_ANY = _mark(_EVENT)
_MARKS = {path: _mark(text) for path, text in _OUTPUT.items()}
