"""A KV pool by its numbers alone: used, cached and free blocks, evicted in the real order."""

from collections import deque


class Kept:
    """Blocks in a row that one sequence left in the cache; eviction shortens it from its end."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks


class Blocks:
    """Counts what engine/kv/pool.py holds by name, for prompts that have no prefix in common.

    Free blocks go first, then the least recently left of the cache. `lost` blocks are a fault's:
    they are neither free nor used; until they are made up for, `available` is negative. So it is
    while more than `limit` are used.
    """

    def __init__(self, total: int, size: int, host: int = 0) -> None:
        """`host`: blocks of the swap pool."""
        self.total = self.limit = total
        self.size = size  # tokens per block
        self.host = host
        self.swapped = 0  # blocks of the swap pool in use
        self.lost = 0
        self.used = 0
        self.cached = 0
        self._order: deque[Kept] = deque()

    @property
    def usable(self) -> int:
        """Blocks that sequences may hold."""
        return min(self.limit, self.total - self.lost)

    @property
    def available(self) -> int:
        """Blocks that can be taken."""
        return self.usable - self.used

    @property
    def free(self) -> int:
        """Blocks without contents."""
        return max(0, self._without_owner - self.cached)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Used, cached, free."""
        return self.used, self.cached, self.free

    @property
    def _without_owner(self) -> int:
        return self.total - self.lost - self.used

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens of one sequence fill."""
        return -(-tokens // self.size)

    def take(self, count: int) -> None:
        """Use so many; the caller has made sure that they are available."""
        self.used += count
        room = max(0, self._without_owner)
        while self.cached > room:
            oldest = self._order[0]
            evicted = min(oldest.blocks, self.cached - room)
            oldest.blocks -= evicted
            self.cached -= evicted
            if not oldest.blocks:
                self._order.popleft()

    def release(self, count: int, stored: int, unnamed: tuple[int, int] = (0, 0)) -> Kept:
        """Give `count` blocks back; those that `stored` tokens filled stay in the cache, but for
        those from `unnamed[0]` to below `unnamed[1]`, which came from the swap pool and have no
        name to be found by. Returns those that can be found again: the row from the first one."""
        full = stored // self.size
        begin, end = unnamed
        self.used -= count
        if begin == end:
            begin = full
        elif end < full:
            self._keep(Kept(full - end))
        return self._keep(Kept(begin))

    def _keep(self, kept: Kept) -> Kept:
        self.cached += kept.blocks
        if kept.blocks:
            self._order.append(kept)
        return kept

    def revive(self, kept: Kept) -> None:
        """Use what is left of a sequence's blocks again."""
        if kept.blocks:
            self._order.remove(kept)
            self.cached -= kept.blocks
            self.used += kept.blocks
            kept.blocks = 0

    def lose(self, count: int) -> None:
        """That many more blocks are gone, contents of the cache first; negative: they are back."""
        self.lost += count
        self.take(0)
