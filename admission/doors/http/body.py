"""A request's body while it arrives: of known length, or chunked, never beyond its limit."""

from typing import Protocol

from surgetank.admission.doors.http.refusals import body_too_large
from surgetank.admission.outcome import Refused, invalid
from surgetank.telemetry.vocabulary import Reason

_MAX_LINE = 256  # a chunk's size line, or one trailer
_MAX_TRAILERS = 32


class Body(Protocol):
    """Takes bytes off the front of a buffer until the body is whole."""

    data: bytearray

    def take(self, buffer: bytearray) -> bool:
        """Consume what belongs to the body; True when it is whole. Refused when it cannot be."""


class SizedBody:
    """A body of Content-Length bytes; zero for a request without one."""

    def __init__(self, length: int) -> None:
        self.data = bytearray()
        self._length = length

    def take(self, buffer: bytearray) -> bool:
        missing = self._length - len(self.data)
        self.data += buffer[:missing]
        del buffer[:missing]
        return len(self.data) == self._length


class ChunkedBody:
    """A body in chunks (RFC 9112, 7.1); extensions and trailers are read and dropped."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self._limit = limit
        self._in_chunk = 0  # bytes of the chunk still to come, its CRLF included
        self._trailers = -1  # lines read after the last chunk; -1 before it

    def take(self, buffer: bytearray) -> bool:
        while True:
            if self._in_chunk:
                if not self._take_chunk(buffer):
                    return False
            elif (line := _take_line(buffer)) is None:
                return False
            elif self._trailers >= 0:
                if not line:
                    return True
                self._trailers += 1
                if self._trailers > _MAX_TRAILERS:
                    raise _bad("too many trailers after the last chunk")
            else:
                self._open_chunk(line)

    def _open_chunk(self, line: bytes) -> None:
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
            raise _bad("a chunk's size is not a hexadecimal number")
        size = int(digits, 16)
        if size == 0:
            self._trailers = 0
            return
        if len(self.data) + size > self._limit:
            raise Refused(body_too_large(len(self.data) + size, self._limit))
        self._in_chunk = size + 2

    def _take_chunk(self, buffer: bytearray) -> bool:
        content = max(0, self._in_chunk - 2)
        part = buffer[:content]
        self.data += part
        del buffer[: len(part)]
        self._in_chunk -= len(part)
        if self._in_chunk > 2 or len(buffer) < 2:
            return False
        if buffer[:2] != b"\r\n":
            raise _bad("a chunk is longer than its size")
        del buffer[:2]
        self._in_chunk = 0
        return True


def _take_line(buffer: bytearray) -> bytes | None:
    """The next line without its CRLF, or None when it is not all there."""
    end = buffer.find(b"\n", 0, _MAX_LINE)
    if end < 0:
        if len(buffer) >= _MAX_LINE:
            raise _bad(f"a line between chunks has more than {_MAX_LINE} bytes")
        return None
    line = bytes(buffer[:end])
    if not line.endswith(b"\r") or b"\r" in line[:-1] or b"\x00" in line:
        raise _bad("a line between chunks does not end in CRLF, or holds control characters")
    del buffer[: end + 1]
    return line[:-1]


def _bad(message: str) -> Refused:
    return invalid(Reason.BAD_REQUEST, f"malformed chunked body: {message}")
