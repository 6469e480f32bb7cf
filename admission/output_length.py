"""How many tokens a request will produce: learned from what its like produced, by quantiles.

Its like: same tenant, same door, max_tokens in the same power of two; with too few of these,
everybody's of that max_tokens; with too few, everybody's of the nearest other power of two, in
proportion; with none, max_tokens itself, which is never too little.
"""

import math
from bisect import bisect_left, insort
from collections import OrderedDict, deque

import msgspec

ENOUGH = 8  # finished choices before a history is believed
_KEEP = 64  # latest choices per history
_HISTORIES = 1024
_NEARBY = (0, -1, 1, -2, 2)  # powers of two away, nearest first
Key = tuple[str, str, int]  # tenant, door, bits of max_tokens


class Expected(msgspec.Struct, frozen=True):
    """Tokens of one choice."""

    mean: float  # costs add up by their means
    high: int  # KV is promised for this much; the rest is settled as it comes


class History:
    """The latest lengths of one kind of request."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque()
        self._sorted: list[int] = []
        self._sum = 0

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, tokens: int) -> None:
        """A choice ended by itself after so many tokens."""
        self._latest.append(tokens)
        self._sum += tokens
        insort(self._sorted, tokens)
        if len(self._latest) > _KEEP:
            oldest = self._latest.popleft()
            self._sum -= oldest
            del self._sorted[bisect_left(self._sorted, oldest)]

    def expected(self, quantile: float) -> Expected:
        """Mean and quantile; there must be something in it."""
        rank = min(len(self._sorted) - 1, int(quantile * len(self._sorted)))
        return Expected(self._sum / len(self._sorted), self._sorted[rank])


class OutputLengths:
    """Every history, the least recently used forgotten first. All methods are O(log n) or less."""

    def __init__(self, quantile: float) -> None:
        self._quantile = quantile
        self._histories: OrderedDict[Key, History] = OrderedDict()

    def expected(self, tenant: str, door: str, max_tokens: int) -> Expected:
        """What to expect of a request; never above its max_tokens."""
        bits = max_tokens.bit_length()
        found = self._known((tenant, door, bits))
        if found is not None:
            seen = found.expected(self._quantile)
            return Expected(min(seen.mean, max_tokens), min(seen.high, max_tokens))
        for step in _NEARBY:
            found = self._known(("", "", bits + step))
            if found is not None:
                seen, scale = found.expected(self._quantile), 2.0**-step
                high = math.ceil(seen.high * scale)
                return Expected(min(seen.mean * scale, max_tokens), min(high, max_tokens))
        return Expected(float(max_tokens), max_tokens)

    def observe(self, tenant: str, door: str, max_tokens: int, tokens: int) -> None:
        """A choice of such a request came to its own end after `tokens`."""
        bits = max_tokens.bit_length()
        for key in {(tenant, door, bits), ("", "", bits)}:
            history = self._histories.get(key)
            if history is None:
                history = self._histories[key] = History()
            history.add(tokens)
            self._histories.move_to_end(key)
        while len(self._histories) > _HISTORIES:
            self._histories.popitem(last=False)

    def _known(self, key: Key) -> History | None:
        """A history that is long enough to be believed."""
        history = self._histories.get(key)
        if history is None or len(history) < ENOUGH:
            return None
        self._histories.move_to_end(key)
        return history
