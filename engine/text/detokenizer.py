"""Tokens to text while they come: whole characters only, and nothing of a stop string."""

import codecs
from collections.abc import Iterable, Sequence, Set

from surgetank.engine.text.pieces import Pieces


class Detokenizer:
    """The text of one choice, released as early as is safe. Constant work per token.

    A character whose bytes are not all there is held back; so is text that may be the beginning of
    a stop string. Bytes that can never become a character turn into U+FFFD, as in a full decode.
    """

    def __init__(
        self, pieces: Pieces, skip: Set[int], stop: Sequence[str] = (), min_tokens: int = 0
    ) -> None:
        """`skip`: ids without text of their own (special tokens). A stop string that ends before
        the min_tokens-th token does not count."""
        self._pieces = pieces
        self._skip = skip
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._stop = _StopStrings(stop) if stop else None
        self._free_tokens = max(0, min_tokens - 1)  # tokens that no stop string may end in
        self.matched: str | None = None  # the stop string that came

    @property
    def stopped(self) -> bool:
        """Whether a stop string came."""
        return self.matched is not None

    def feed(self, ids: Iterable[int]) -> str:
        """The text that these tokens made certain; "" for ever once a stop string came."""
        if self._stop is None:
            pieces, skip = self._pieces, self._skip
            return self._decode(b"".join([pieces[i] for i in ids if i not in skip]))
        return "".join([self._feed_one(token_id, self._stop) for token_id in ids])

    def flush(self) -> str:
        """The rest, when no more tokens will come."""
        if self.stopped:
            return ""
        rest = self._decode(b"", True)
        return rest if self._stop is None else self._match(rest, self._stop) + self._stop.take()

    def _feed_one(self, token_id: int, stop: "_StopStrings") -> str:
        if self.stopped:
            return ""
        text = "" if token_id in self._skip else self._decode(self._pieces[token_id])
        if self._free_tokens > 0:
            self._free_tokens -= 1
            return text
        return self._match(text, stop) if text else ""

    def _match(self, text: str, stop: "_StopStrings") -> str:
        safe = stop.feed(text)
        self.matched = stop.found
        return safe


class _StopStrings:
    """Finds the stop string that ends first, in text that comes in parts of any size."""

    def __init__(self, stop: Sequence[str]) -> None:
        if not all(stop):
            raise ValueError("stop: an empty string; allowed: at least one character each")
        self._stop = tuple(stop)
        self._held = ""  # always shorter than the longest stop string
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """What of the text so far cannot belong to a stop string."""
        text = self._held + text
        ends = [(at + len(s), at, s) for s in self._stop if (at := text.find(s)) >= 0]
        if ends:
            _, at, self.found = min(ends)
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, s) for s in self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def take(self) -> str:
        """What was held back, now that the text has ended."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest proper beginning of `stop` that `text` ends with."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
