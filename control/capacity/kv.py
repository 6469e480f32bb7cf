"""KV cache: bytes per token by layer type, blocks as engines cut them, and what fits in a pool.

Per token and layer, on one of t ranks, at w bytes an element:
    grouped or multi-head   max(1, h_kv/t) * (d_k + d_v) * w     (replicated once t > h_kv)
    latent                  (rank + rope) * w                    (whole on every rank)
Per sequence and layer, whatever its length: recurrent state (conv*w + recurrent*4) / t.

A window of W tokens holds at most ceil((W-1)/b) + 1 blocks of b tokens, for it need not start at a
block's edge. Where full and windowed layers mix, engines give each group of equally many layers a
block table of its own, so one block serves group-size layers; the group is the smaller kind, or
the larger when that is less than 1.5 times as many (vLLM's hybrid KV cache manager).
"""

import math
from collections import Counter
from dataclasses import dataclass

from surgetank.control.capacity.architecture import Architecture, Attention, Latent, State

_NEARLY = 1.5


@dataclass(frozen=True, slots=True)
class Layout:
    """How one rank stores the cache; sizes in bytes."""

    block_size: int  # tokens
    block_bytes: int
    groups: tuple[tuple[int | None, int], ...]  # (window, block tables): tables share the pool
    token_bytes: int  # all layers of attention, while inside every window
    state_bytes: int  # per sequence

    @property
    def tables(self) -> int:
        return sum(count for _, count in self.groups)

    def sequence_blocks(self, context: int) -> int:
        """Blocks of one sequence of `context` tokens, over all its tables."""
        length = math.ceil(context / self.block_size)
        blocks = 0
        for window, count in self.groups:
            cap = length if window is None else math.ceil((window - 1) / self.block_size) + 1
            blocks += count * min(length, cap)
        return blocks

    def sequence_bytes(self, context: int) -> int:
        return self.sequence_blocks(context) * self.block_bytes + self.state_bytes

    def blocks(self, pool: int, sequences: int) -> int:
        """Blocks in a pool of bytes, after the state of so many sequences."""
        if not self.block_bytes:
            return 0
        return max(0, pool - sequences * self.state_bytes) // self.block_bytes

    def tokens(self, blocks: int) -> int:
        """Tokens that so many blocks hold, as engines print it: every table holds each token."""
        return blocks // max(1, self.tables) * self.block_size

    def concurrency(self, pool: int, context: int) -> int:
        """Sequences of `context` tokens that fit in the pool together."""
        return max(0, pool) // max(1, self.sequence_bytes(context))

    def context(self, pool: int, sequences: int, longest: int) -> int:
        """The longest context at which so many sequences fit; 0 when not one token does."""
        low, high = 0, longest
        while low < high:
            middle = (low + high + 1) // 2
            if sequences * self.sequence_bytes(middle) <= pool:
                low = middle
            else:
                high = middle - 1
        return low


def rank_heads(kv_heads: int, tp: int) -> int:
    """KV heads on one rank: shared out, or replicated once there are more ranks than heads."""
    return max(1, kv_heads // tp)


def layer_bytes(cache: Attention | Latent, tp: int, width: int) -> int:
    """Bytes of one token in one layer on one rank."""
    if isinstance(cache, Latent):
        return (cache.rank + cache.rope_dim) * width
    return rank_heads(cache.kv_heads, tp) * (cache.key_dim + cache.value_dim) * width


def state_bytes(cache: State, tp: int, width: int) -> int:
    """Bytes of one sequence in one recurrent layer on one rank."""
    return math.ceil((cache.conv * width + cache.recurrent * 4) / tp)


def lay_out(
    architecture: Architecture, *, tp: int, kv_width: int, state_width: int, block_size: int
) -> Layout:
    """The layout of a model's cache on each of `tp` ranks."""
    kinds: Counter[tuple[int | None, int]] = Counter()
    state = 0
    for cache in architecture.caches:
        if isinstance(cache, State):
            state += state_bytes(cache, tp, state_width)
        else:
            window = cache.window if isinstance(cache, Attention) else None
            kinds[window, layer_bytes(cache, tp, kv_width)] += 1
    token = sum(size * layers for (_, size), layers in kinds.items())
    windows = {window for window, _ in kinds}
    sizes = {size for _, size in kinds}
    if len(windows) <= 1 or len(sizes) > 1:  # one table; unequal layers cannot trade blocks
        window = windows.pop() if len(windows) == 1 else None
        groups = ((window, 1),) if kinds else ()
        return Layout(block_size, block_size * token, groups, token, state)
    fewest, most = min(kinds.values()), max(kinds.values())
    group = most if most < _NEARLY * fewest else fewest
    tables = tuple((window, math.ceil(layers / group)) for (window, _), layers in kinds.items())
    return Layout(block_size, block_size * sizes.pop() * group, tables, token, state)
