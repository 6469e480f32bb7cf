"""How one step's sequences are grouped for torch: similar lengths together, padding masked."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass

import torch

from surgetank.engine.kernels.attention import AttentionShape
from surgetank.engine.model.batch import ForwardBatch

# Gathering this many more blocks per layer costs about as much as launching one more group.
GROUP_COST_BLOCKS = 64
# Beyond this a tile's scores outgrow the caches, and the allocator maps fresh pages for them.
MAX_TILE_SCORES = 2**20
MAX_TILE_QUERIES = 64


class Gather:
    """K and V of n sequences' blocks, laid out head by head in one buffer that all layers reuse:
    a fresh tensor per layer would cost more in page faults than the copy itself."""

    def __init__(self, block_tables: torch.Tensor, block_size: int, shape: AttentionShape) -> None:
        n, blocks = block_tables.shape
        heads = torch.arange(2 * shape.num_kv_heads, device=shape.device)
        heads = heads.view(2, 1, shape.num_kv_heads, 1)  # K's before V's, as in the pool
        rows = block_tables[None, :, None, :] * (2 * shape.num_kv_heads) + heads
        self._rows = rows.flatten()
        self._buffer = torch.empty(
            (2, n * shape.num_kv_heads, blocks * block_size, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )

    def __call__(self, pool: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """pool is [blocks * 2 * kv_heads, block_size * head_dim]; K and V are
        [n * kv_heads, length, head_dim], valid until the next call."""
        torch.index_select(pool, 0, self._rows, out=self._buffer.view(len(self._rows), -1))
        return self._buffer[0], self._buffer[1]


@dataclass(frozen=True, slots=True)
class Tile:
    """Q query tokens of each of n sequences, attending to their first L tokens.

    The query heads that share a KV head are rows of one matrix: K and V are never repeated.
    """

    tokens: torch.Tensor  # [n * Q] flat positions; a padded query repeats its sequence's last one
    mask: torch.Tensor  # [n, 1, Q, 1, L] 0 or -inf

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """q (already scaled) and out are [T, heads, d], k and v are [n * kv_heads, length, d]."""
        (n, _, queries, _, length), (batch, _, d) = self.mask.shape, k.shape
        picked = q.index_select(0, self.tokens).view(n, queries, batch // n, -1, d)
        rows = picked.transpose(1, 2).reshape(batch, -1, d)
        scores = torch.bmm(rows, k[:, :length].transpose(1, 2))
        scores.view(n, batch // n, queries, -1, length).add_(self.mask)
        result = torch.bmm(scores.softmax(-1), v[:, :length])
        result = result.view(n, batch // n, queries, -1, d).transpose(1, 2)
        out.index_copy_(0, self.tokens, result.reshape(n * queries, -1, d))


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences whose blocks are gathered together, and their queries tile by tile."""

    gather: Gather
    tiles: list[Tile]

    def attend(self, pool: torch.Tensor, q: torch.Tensor, out: torch.Tensor) -> None:
        k, v = self.gather(pool)
        for tile in self.tiles:
            tile.attend(q, k, v, out)


def plan_groups(batch: ForwardBatch, block_size: int, shape: AttentionShape) -> list[Group]:
    """All sequences of a step: decoding ones split by context length where that saves more than
    it costs, prompt chunks together when their sizes are within a factor of two."""
    members = []
    if batch.num_decode:
        lens = batch.context_lens[: batch.num_decode]
        counts, order = ((lens + block_size - 1) // block_size).sort()
        ranges = split_by_length(counts.tolist(), GROUP_COST_BLOCKS)
        members += [order[low:high] for low, high in ranges]
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    sizes = zip(batch.query_lens.tolist(), batch.context_lens.tolist())
    for index, (query_len, context_len) in enumerate(sizes):
        if index >= batch.num_decode:
            alike[query_len.bit_length(), context_len.bit_length()].append(index)
    members += [torch.tensor(chunk, device=batch.slots.device) for chunk in alike.values()]
    return [_group(batch, rows, block_size, shape) for rows in members]


def split_by_length(counts: list[int], cost: int) -> list[tuple[int, int]]:
    """Ranges (low, high) of ascending `counts`. A split at i spares the i shorter ones the padding
    beyond their own longest; the best one is made while it spares more than `cost`."""
    ranges, high = [], len(counts)
    while high > 0:
        longest = counts[high - 1]
        distinct = sorted(set(counts[:high]))[:-1]
        cuts = [(bisect_left(counts, count + 1), count) for count in distinct]
        spared, low = max(((i * (longest - count), i) for i, count in cuts), default=(0, 0))
        if spared <= cost:
            low = 0
        ranges.append((low, high))
        high = low
    return ranges


def _group(
    batch: ForwardBatch, rows: torch.Tensor, block_size: int, shape: AttentionShape
) -> Group:
    longest, queries = int(batch.context_lens[rows].max()), int(batch.query_lens[rows].max())
    size = MAX_TILE_SCORES // (len(rows) * shape.num_heads * longest)
    size = max(1, min(size, MAX_TILE_QUERIES))
    blocks = -(-longest // block_size)
    return Group(
        Gather(batch.block_tables[rows, :blocks], block_size, shape),
        [
            _tile(batch, rows, range(start, min(start + size, queries)), block_size, shape)
            for start in range(0, queries, size)
        ],
    )


def _tile(
    batch: ForwardBatch, rows: torch.Tensor, part: range, block_size: int, shape: AttentionShape
) -> Tile:
    """Queries `part` of each sequence in `rows`; each sees its own position and those before.

    Whole blocks of keys: the last tile then takes its gather's buffer as it lies, uncut. torch
    copies a cut one before it multiplies in bfloat16.
    """
    steps = torch.arange(part.start, part.stop, device=rows.device)
    last = batch.query_lens[rows, None] - 1
    tokens = batch.query_starts[rows, None] + torch.minimum(steps, last)
    positions = batch.positions[tokens]
    blocks = int(positions.max()) // block_size + 1
    keys = torch.arange(blocks * block_size, device=rows.device)
    mask = torch.zeros(*tokens.shape, len(keys), dtype=shape.dtype, device=rows.device)
    mask.masked_fill_(keys > positions.unsqueeze(-1), -torch.inf)
    return Tile(tokens.flatten(), mask[:, None, :, None, :])
