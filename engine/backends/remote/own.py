"""How many sequences we have in an engine: now, and the least and the most of late.

Such an engine is looked at once a second, and tells its count of some moment since the look before:
its metrics may be that old, and what we sent or hung up just now is on its way. So its count is set
against all that we had in it during the last two looks. Between the least and the most of that
nothing is wrong; what it has beyond is somebody else's, and what is missing it does not know of.
"""


class OwnCount:
    """Of one engine."""

    def __init__(self) -> None:
        self.now = 0  # sequences
        self._least = self._most = (0, 0)  # since the last look, and between the two before

    def add(self, sequences: int) -> None:
        """So many more, or fewer."""
        self.now += sequences
        self._least = (min(self._least[0], self.now), self._least[1])
        self._most = (max(self._most[0], self.now), self._most[1])

    def looked(self, told: float | None) -> int | None:
        """The engine was looked at, and `told` how many it has. Returns how many of ours it misses;
        below 0: how many it has beside ours. None where it does not tell."""
        least, most = min(self._least), max(self._most)
        self._least = (self.now, self._least[0])
        self._most = (self.now, self._most[0])
        return None if told is None else min(max(least - round(told), 0), most - round(told))
