"""Where an HTTP answer's body ends, found while its bytes go by untouched (RFC 9112, 6 and 7)."""

from typing import Protocol

_LONGEST_LINE = 1024  # bytes of a chunk's size line, or of one trailer
_SIZES = {b"%x" % size: size for size in range(1, 4096)}  # as engines write an event's chunk
_EVENT = b"\ndata:"  # JSON holds no bare line feed, so this begins an event and nothing else
_SEAM = len(_EVENT) - 1  # bytes in which an event's beginning can be cut off
_RESTS = tuple(_EVENT[cut:] for cut in range(1, len(_EVENT)))  # what may come after the cut


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
        if self.between:  # nearly always one whole chunk comes, an event
            feed = data.find(b"\r\n")
            size = _SIZES.get(data[:feed])
            if size is not None and feed + size + 4 == len(data):
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
    """Counts the events of a stream (lines that begin with `data:`) in bytes that go by."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = b"\n"  # the bytes before: an event's beginning may be cut in two

    def count(self, data: bytes) -> int:
        """How many events begin in these bytes."""
        begun = data.count(_EVENT)
        if data.startswith(_RESTS):
            begun += (self._before[-_SEAM:] + data[:_SEAM]).count(_EVENT)
        self._before = data if len(data) >= _SEAM else self._before[-_SEAM:] + data
        return begun
