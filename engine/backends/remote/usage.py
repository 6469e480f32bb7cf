"""What an answer says of its own size, found in its last bytes without parsing the rest."""

import re

from surgetank.engine.backends.remote.api import Usage

_DONE = b"data: [DONE]"
KEEP = 4096  # bytes at the end of an answer in which its usage stands
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_FIELDS = (
    re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})'),
    re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})'),
    re.compile(rb'"(?:cached_tokens|cache_read_input_tokens)"\s*:\s*(\d{1,12})'),
)
# Anthropic's input_tokens are those that no cache had to do with.
_BESIDE = re.compile(rb'"cache_(?:read|creation)_input_tokens"\s*:\s*(\d{1,12})')


def read_usage(tail: bytes) -> Usage:
    """The last usage object in `tail`, by the names of chat and text completions, of responses, or
    of Anthropic's messages."""
    objects = [match.end() for match in _USAGE.finditer(tail)]
    if not objects:
        return Usage()
    matches = [field.search(tail, objects[-1]) for field in _FIELDS]
    prompt, output, cached = [None if match is None else int(match[1]) for match in matches]
    if prompt is not None:
        prompt += sum(map(int, _BESIDE.findall(tail, objects[-1])))
    return Usage(prompt, output, cached)


class Tail:
    """The last KEEP bytes of what goes by."""

    __slots__ = (
        "_parts",
        "_size",
    )

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

    def says_done(self) -> bool:
        """Whether they end with the event after which a stream says nothing more."""
        return b"".join(self._parts)[-KEEP:].rstrip().endswith(_DONE)
