"""What an answer says of its own size, found in its last bytes without parsing the rest."""

import re

from surgetank.engine.backends.remote.api import Usage

KEEP = 4096  # bytes at the end of an answer in which its usage stands
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_FIELDS = (
    re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})'),
    re.compile(rb'"completion_tokens"\s*:\s*(\d{1,12})'),
    re.compile(rb'"cached_tokens"\s*:\s*(\d{1,12})'),
)


def read_usage(tail: bytes) -> Usage:
    """The last usage object in `tail`: OpenAI's names, which all engines here use."""
    objects = list(_USAGE.finditer(tail))
    if not objects:
        return Usage()
    found = (field.search(tail, objects[-1].end()) for field in _FIELDS)
    prompt, output, cached = (None if match is None else int(match[1]) for match in found)
    return Usage(prompt, output, cached)


class Tail:
    """The last KEEP bytes of what goes by."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """More bytes; kept by reference until there are twice too many."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > 2 * KEEP:
            kept = b"".join(self._parts)[-KEEP:]
            self._parts, self._size = [kept], len(kept)

    def usage(self) -> Usage:
        """What they say."""
        return read_usage(b"".join(self._parts)[-KEEP:])
