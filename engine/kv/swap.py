"""The swap pool's books: which blocks of host memory are free."""

from collections import Counter
from collections.abc import Iterable


class HostPool:
    """`size` blocks in host memory, each with one owner or none."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size - 1, -1, -1))

    @property
    def used(self) -> int:
        return self.size - len(self._free)

    def take(self, count: int) -> list[int] | None:
        """So many blocks; None, and nothing taken, when there are not enough."""
        if count > len(self._free):
            return None
        return [self._free.pop() for _ in range(count)]

    def release(self, blocks: list[int]) -> None:
        """Give blocks back."""
        self._free += blocks

    def faults(self, tables: Iterable[list[int]]) -> list[str]:
        """What is wrong, given every live table's host blocks; an empty list when all is well."""
        held = Counter(block for table in tables for block in table) + Counter(self._free)
        return [
            f"host block {block}: held or listed as free {held[block]} times"
            for block in range(self.size)
            if held[block] != 1
        ]
