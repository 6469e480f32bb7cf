"""The block pool: reference counts, and an LRU of unused blocks that may be wanted again."""

from collections import Counter, OrderedDict
from collections.abc import Iterable


class KVError(Exception):
    """A block was freed twice, or shared while free: the books are wrong."""


class NoBlockError(Exception):
    """A block was wanted and none was left."""


class BlockPool:
    """`size` blocks, each in one of three states.

    used: somebody refers to it. cached: nobody does, but its contents have a name and can be found
    again until the space is needed. free: without contents. At most `limit` are used; where it is
    lowered below what is used, `available` is negative until enough has come back.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.limit = size
        self.stored_tokens = 0  # tokens in used blocks, a shared block counted once
        self._references = [0] * size
        self._filled = [0] * size  # tokens in each block
        self._digests: list[bytes | None] = [None] * size
        self._by_digest: dict[bytes, int] = {}
        self._free = list(range(size - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def used(self) -> int:
        return self.size - len(self._free) - len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that can be taken: free ones, and cached ones at the price of their contents."""
        return len(self._free) + len(self._cached) - (self.size - self.limit)

    def references(self, block: int) -> int:
        return self._references[block]

    def is_cached(self, block: int) -> bool:
        return block in self._cached

    def find(self, digest: bytes) -> int | None:
        """The block that holds these contents, used or cached."""
        return self._by_digest.get(digest)

    def take(self) -> int:
        """An empty block with one reference; the oldest cached contents go when none is free.

        Raises NoBlockError when none is available.
        """
        if self.available <= 0:
            raise NoBlockError(f"no block left of {self.limit}")
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._forget(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """One reference more, to a used block or to a cached one, which is then used again."""
        if self._references[block] == 0:
            if block not in self._cached:
                raise KVError(f"block {block} is free and has nothing to share")
            del self._cached[block]
            self.stored_tokens += self._filled[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """One reference less; without any left, named contents stay as long as space allows."""
        if self._references[block] == 0:
            raise KVError(f"block {block} is released more often than it was taken")
        self._references[block] -= 1
        if self._references[block]:
            return
        self.stored_tokens -= self._filled[block]
        if self._digests[block] is None:
            self._filled[block] = 0
            self._free.append(block)
        else:
            self._cached[block] = None

    def fill(self, block: int, tokens: int) -> None:
        """The used block now holds so many tokens."""
        self.stored_tokens += tokens - self._filled[block]
        self._filled[block] = tokens

    def publish(self, block: int, digest: bytes) -> None:
        """Make a full block's contents findable; the first block of equal ones keeps the name."""
        if digest not in self._by_digest and self._digests[block] is None:
            self._digests[block] = digest
            self._by_digest[digest] = block

    def drop_cached(self) -> int:
        """Free every cached block, its contents lost. Returns how many that were."""
        dropped = len(self._cached)
        for block in self._cached:
            self._forget(block)
            self._free.append(block)
        self._cached.clear()
        return dropped

    def _forget(self, block: int) -> None:
        digest = self._digests[block]
        if digest is not None:
            del self._by_digest[digest]
            self._digests[block] = None
        self._filled[block] = 0

    def faults(self, tables: Iterable[list[int]]) -> list[str]:
        """What is wrong, given every live table of blocks; an empty list when all is well."""
        held = Counter(block for table in tables for block in table)
        found = [
            f"block {block}: {self._references[block]} references counted, {held[block]} held"
            for block in range(self.size)
            if self._references[block] != held[block]
        ]
        idle = Counter(self._free) + Counter(self._cached.keys())
        unused = {block for block in range(self.size) if self._references[block] == 0}
        if set(idle) != unused or any(count > 1 for count in idle.values()):
            found.append(f"{len(unused)} blocks without references, {idle.total()} listed as idle")
        named = {block for block in range(self.size) if self._digests[block] is not None}
        if named != set(self._by_digest.values()) or not set(self._cached) <= named:
            found.append("the names of blocks and the index of names disagree")
        stored = sum(self._filled[block] for block in range(self.size) if block not in unused)
        if stored != self.stored_tokens:
            found.append(f"{self.stored_tokens} tokens counted as stored, {stored} found")
        return found
