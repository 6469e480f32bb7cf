"""The KV manager: each sequence's table of blocks that grow, share a prefix, fork and end."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from surgetank.engine.kv.pool import BlockPool, NoBlockError
from surgetank.engine.kv.prefix import extend_digests
from surgetank.engine.kv.swap import HostPool

Copy = tuple[int, int]  # (from block, to block): contents to move before the next forward pass


@dataclass(slots=True)
class BlockTable:
    """Where one sequence's keys and values lie."""

    blocks: list[int] = field(default_factory=list)
    stored: int = 0  # tokens whose keys and values are in the blocks
    digests: list[bytes] = field(default_factory=list)  # names of its full blocks, once computed
    host: list[int] = field(default_factory=list)  # blocks of the swap pool, while swapped out
    host_stored: int = 0  # tokens in them


class KVManager:
    """Hands out blocks to tables. Only bookkeeping: moving contents is the caller's work."""

    def __init__(
        self, blocks: int, block_size: int, host_blocks: int = 0, block_bytes: int = 0
    ) -> None:
        """`block_size` in tokens; `block_bytes` is what one block's keys and values take."""
        self.block_size = block_size
        self.block_bytes = block_bytes
        self.pool = BlockPool(blocks)
        self.host = HostPool(host_blocks)

    @property
    def capacity(self) -> int:
        """Tokens that sequences may hold in all."""
        return self.pool.limit * self.block_size

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens of one sequence fill."""
        return -(-tokens // self.block_size)

    def admit(self, table: BlockTable, tokens: list[int], spare: int = 0) -> bool:
        """Give an empty table room for all of `tokens`, as far as possible by sharing.

        False, and nothing taken, when that would leave fewer than `spare` blocks available.
        Afterwards `table.stored` tells how many tokens were found in the cache; what else was
        swapped out comes back by swap_in(). Raises NoBlockError, and takes nothing, when the pool
        does not give what it had promised.
        """
        if self.shortage(table, tokens, spare) > 0:
            return False
        found = self._match(table, tokens)
        for block in found:
            self.pool.share(block)
        table.blocks, table.stored = found, len(found) * self.block_size
        try:
            while len(table.blocks) < self.blocks_for(len(tokens)):
                table.blocks.append(self.pool.take())
        except NoBlockError:
            self._release_blocks(table)
            raise
        return True

    def shortage(
        self,
        table: BlockTable,
        tokens: list[int],
        spare: int = 0,
        given_up: Iterable[BlockTable] = (),
    ) -> int:
        """Blocks that admit() would lack if `given_up` were released; none when it is <= 0."""
        held = Counter(block for each in given_up for block in each.blocks)
        freed = {block for block, count in held.items() if count == self.pool.references(block)}
        found = self._match(table, tokens)
        fresh = self.blocks_for(len(tokens)) - len(found)
        revived = sum(self.pool.is_cached(block) or block in freed for block in found)
        return fresh + revived + spare - self.pool.available - len(freed)

    def needs(self, table: BlockTable) -> int:
        """Blocks that one more token takes: 1 past a full block or in a shared one, else 0."""
        if table.stored == len(table.blocks) * self.block_size:
            return 1
        return int(self.pool.references(table.blocks[-1]) > 1)

    def frees(self, table: BlockTable) -> bool:
        """Whether its release makes any block available: false where all are shared."""
        return any(self.pool.references(block) == 1 for block in reversed(table.blocks))

    def grow(self, table: BlockTable) -> Copy | None:
        """Make room for one more token; the copy to make when the last block was shared.

        Raises NoBlockError when needs() is 1 and no block is available.
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
        self._release_blocks(table)
        self.forget_swapped(table)

    def swap_out(self, table: BlockTable) -> list[Copy] | None:
        """Release the blocks, and keep what is stored in the swap pool: the moves (block, host
        block) to make before anything is written. None, and nothing done, without room there."""
        stored = table.stored
        host = self.host.take(self.blocks_for(stored))
        if not host:
            return None
        moves = list(zip(table.blocks, host))
        self._release_blocks(table)
        table.host, table.host_stored = host, stored
        return moves

    def swap_in(self, table: BlockTable) -> list[Copy]:
        """After admit(): the moves (host block, block) that bring back what was swapped out and
        not found in the cache. The contents get no name, for they are not there yet."""
        found = table.stored // self.block_size
        for index in range(found, len(table.host)):
            filled = min(self.block_size, table.host_stored - index * self.block_size)
            self.pool.fill(table.blocks[index], filled)
        moves = list(zip(table.host[found:], table.blocks[found:]))
        table.stored = max(table.stored, table.host_stored)
        self.forget_swapped(table)
        return moves

    def forget_swapped(self, table: BlockTable) -> None:
        """What was swapped out is given up, to be computed again."""
        self.host.release(table.host)
        table.host, table.host_stored = [], 0

    def faults(self, tables: Iterable[BlockTable]) -> list[str]:
        """What is wrong, given every live table; an empty list when all is well."""
        everyone = list(tables)
        return self.pool.faults(table.blocks for table in everyone) + self.host.faults(
            table.host for table in everyone
        )

    def _release_blocks(self, table: BlockTable) -> None:
        for block in reversed(table.blocks):  # so that a prefix outlives what was built on it
            self.pool.release(block)
        table.blocks = []
        table.stored = 0

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
