"""The KV manager: each sequence's table of blocks that grow, share a prefix, fork and end."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from surgetank.engine.kv.pool import BlockPool
from surgetank.engine.kv.prefix import extend_digests

Copy = tuple[int, int]  # (from block, to block): contents to move before the next forward pass


@dataclass(slots=True)
class BlockTable:
    """Where one sequence's keys and values lie."""

    blocks: list[int] = field(default_factory=list)
    stored: int = 0  # tokens whose keys and values are in the blocks
    digests: list[bytes] = field(default_factory=list)  # names of its full blocks, once computed


class KVManager:
    """Hands out blocks to tables. Only bookkeeping: moving contents is the caller's work."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.pool = BlockPool(blocks)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens of one sequence fill."""
        return -(-tokens // self.block_size)

    def admit(self, table: BlockTable, tokens: list[int], spare: int = 0) -> bool:
        """Give an empty table room for all of `tokens`, as far as possible by sharing.

        False, and nothing taken, when that would leave fewer than `spare` blocks available.
        Afterwards `table.stored` tells how many tokens were found in the cache.
        """
        found = self._match(table, tokens)
        fresh = self.blocks_for(len(tokens)) - len(found)
        revived = sum(map(self.pool.is_cached, found))
        if fresh + revived + spare > self.pool.available:
            return False
        for block in found:
            self.pool.share(block)
        table.blocks = found + [self.pool.take() for _ in range(fresh)]
        table.stored = len(found) * self.block_size
        return True

    def needs(self, table: BlockTable) -> int:
        """Blocks that one more token takes: 1 past a full block or in a shared one, else 0."""
        if table.stored == len(table.blocks) * self.block_size:
            return 1
        return int(self.pool.references(table.blocks[-1]) > 1)

    def grow(self, table: BlockTable) -> Copy | None:
        """Make room for one more token; the copy to make when the last block was shared.

        Raises KVError when needs() is 1 and no block is available.
        """
        if not self.needs(table):
            return None
        fresh = self.pool.take()
        if table.stored == len(table.blocks) * self.block_size:
            table.blocks.append(fresh)
            return None
        shared, table.blocks[-1] = table.blocks[-1], fresh
        self.pool.fill(fresh, table.stored % self.block_size)
        self.pool.release(shared)
        return shared, fresh

    def fill(self, table: BlockTable, tokens: list[int], count: int) -> None:
        """The keys and values of the next `count` of `tokens` are now in the table's blocks."""
        size = self.block_size
        first = table.stored // size
        table.stored += count
        for index in range(first, self.blocks_for(table.stored)):
            self.pool.fill(table.blocks[index], min(size, table.stored - index * size))
        full = table.stored // size
        if full > first:
            digests = extend_digests(table.digests, tokens, size, full)
            for index in range(first, full):
                self.pool.publish(table.blocks[index], digests[index])

    def fork(self, table: BlockTable) -> BlockTable:
        """A second table over the same blocks; whoever writes first gets a copy of the last one."""
        for block in table.blocks:
            self.pool.share(block)
        return BlockTable(list(table.blocks), table.stored, list(table.digests))

    def release(self, table: BlockTable) -> None:
        """Give everything back; the table is empty afterwards and may be admitted again."""
        for block in reversed(table.blocks):  # so that a prefix outlives what was built on it
            self.pool.release(block)
        table.blocks = []
        table.stored = 0

    def faults(self, tables: Iterable[BlockTable]) -> list[str]:
        """What is wrong, given every live table; an empty list when all is well."""
        return self.pool.faults(table.blocks for table in tables)

    def _match(self, table: BlockTable, tokens: list[int]) -> list[int]:
        """Blocks that already hold a prefix of `tokens`, its last token always left to compute."""
        full = (len(tokens) - 1) // self.block_size
        found: list[int] = []
        for digest in extend_digests(table.digests, tokens, self.block_size, full)[:full]:
            block = self.pool.find(digest)
            if block is None:
                break
            found.append(block)
        return found
