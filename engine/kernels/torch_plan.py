"""How one step's sequences are grouped for torch: similar lengths together, padding masked."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch.nn import functional

from surgetank.engine.kernels.attention import AttentionShape
from surgetank.engine.model.batch import ForwardBatch

# Gathering this many more blocks per layer costs about as much as launching one more group.
GROUP_COST_BLOCKS = 64


class Gather:
    """K and V of n sequences' blocks, laid out head by head in one buffer that all layers reuse:
    a fresh tensor per layer would cost more in page faults than the copy itself."""

    def __init__(self, block_tables: torch.Tensor, block_size: int, shape: AttentionShape) -> None:
        n, blocks = block_tables.shape
        heads = torch.arange(2 * shape.num_kv_heads, device=shape.device)
        heads = heads.view(2, 1, shape.num_kv_heads, 1)  # K's before V's, as in the pool
        rows = block_tables[None, :, None, :] * (2 * shape.num_kv_heads) + heads
        self.rows = rows.flatten()
        self.length = blocks * block_size
        self._buffer = torch.empty(
            (2, n, shape.num_kv_heads, self.length, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )

    def __call__(self, pool: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """pool is [blocks * 2 * kv_heads, block_size * head_dim]; K and V are
        [n, kv_heads, length, head_dim], valid until the next call."""
        flat = self._buffer.view(len(self.rows), -1)
        torch.index_select(pool, 0, self.rows, out=flat)
        k, v = self._buffer.unbind()
        return k, v


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """n sequences with one query token each, their contexts padded to L tokens.

    The query heads that share a KV head are rows of one small matrix: K and V are never repeated.
    """

    rows: torch.Tensor | slice  # which of the step's tokens
    gather: Gather
    mask: torch.Tensor  # [n * kv_heads, 1, L] 0 or -inf
    scale: float

    def attend(self, pool: torch.Tensor, q: torch.Tensor, out: torch.Tensor) -> None:
        """q and out are [T, heads, head_dim]."""
        k, v = self.gather(pool)
        k, v = k.flatten(0, 1), v.flatten(0, 1)
        picked = q[self.rows].reshape(len(k), -1, q.shape[-1])
        scores = torch.baddbmm(self.mask, picked, k.transpose(1, 2), alpha=self.scale)
        out[self.rows] = torch.bmm(scores.softmax(-1), v).view(-1, *q.shape[1:])


@dataclass(frozen=True, slots=True)
class ChunkGroup:
    """n prompt chunks padded to Q query tokens over contexts padded to L."""

    tokens: torch.Tensor  # [n, Q] flat positions; padding repeats a real one
    valid: torch.Tensor  # [real] which of the n * Q are real ...
    targets: torch.Tensor  # [real] ... and their flat positions
    gather: Gather | None  # None: the chunk is the whole context
    mask: torch.Tensor | None  # [n, 1, Q, L]; None: plain causal

    def attend(
        self,
        pool: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        if self.gather is None:
            k, v = k[self.tokens].transpose(1, 2), v[self.tokens].transpose(1, 2)
        else:
            k, v = self.gather(pool)
        result = functional.scaled_dot_product_attention(
            q[self.tokens].transpose(1, 2),
            k,
            v,
            attn_mask=self.mask,
            is_causal=self.mask is None,
            enable_gqa=True,
        )
        flat = result.transpose(1, 2).reshape(-1, *q.shape[1:])
        out.index_copy_(0, self.targets, flat[self.valid])


def decode_groups(batch: ForwardBatch, block_size: int, shape: AttentionShape) -> list[DecodeGroup]:
    """The decoding sequences, split by context length where that saves more than it costs."""
    if batch.num_decode == 0:
        return []
    lens = batch.context_lens[: batch.num_decode]
    counts, order = ((lens + block_size - 1) // block_size).sort()
    bounds = split_by_length(counts.tolist(), GROUP_COST_BLOCKS)
    groups = []
    for low, high, blocks in bounds:
        rows = slice(0, batch.num_decode) if len(bounds) == 1 else order[low:high]
        cells = torch.arange(blocks * block_size, device=lens.device)
        mask = torch.zeros(high - low, len(cells), dtype=shape.dtype, device=lens.device)
        mask.masked_fill_(cells >= lens[rows, None], -torch.inf)
        groups.append(
            DecodeGroup(
                rows=rows,
                gather=Gather(batch.block_tables[rows, :blocks], block_size, shape),
                mask=mask.repeat_interleave(shape.num_kv_heads, 0).unsqueeze(1),
                scale=shape.head_dim**-0.5,
            )
        )
    return groups


def split_by_length(counts: list[int], cost: int) -> list[tuple[int, int, int]]:
    """Ranges (low, high, longest) of ascending `counts`. A split at i spares the i shorter ones
    the padding beyond their own longest; the best one is made while it spares more than `cost`."""
    ranges, high = [], len(counts)
    while high > 0:
        longest = counts[high - 1]
        distinct = sorted(set(counts[:high]))[:-1]
        cuts = [(bisect_left(counts, count + 1), count) for count in distinct]
        spared, low = max(((i * (longest - count), i) for i, count in cuts), default=(0, 0))
        if spared <= cost:
            low = 0
        ranges.append((low, high, longest))
        high = low
    return ranges


def chunk_groups(batch: ForwardBatch, block_size: int, shape: AttentionShape) -> list[ChunkGroup]:
    """The prompt chunks, those of a similar size (within a factor of two) together."""
    first = batch.num_decode
    query_lens, context_lens = batch.query_lens.tolist(), batch.context_lens.tolist()
    alike: dict[tuple[bool, int, int], list[int]] = defaultdict(list)
    for index in range(first, len(query_lens)):
        query, context = query_lens[index], context_lens[index]
        alike[query == context, query.bit_length(), context.bit_length()].append(index)
    return [
        chunk_group(batch, block_size, shape, members, whole)
        for (whole, _, _), members in alike.items()
    ]


def chunk_group(
    batch: ForwardBatch, block_size: int, shape: AttentionShape, members: list[int], whole: bool
) -> ChunkGroup:
    """One group; `whole` when each chunk starts its sequence, so that nothing is gathered."""
    device = batch.slots.device
    rows = torch.tensor(members, device=device)
    query_lens, context_lens = batch.query_lens[rows, None], batch.context_lens[rows, None]
    steps = torch.arange(int(query_lens.max()), device=device)
    tokens = batch.query_starts[rows, None] + torch.minimum(steps, query_lens - 1)
    valid = (steps < query_lens).flatten().nonzero().flatten()
    gather = mask = None
    if not whole:
        blocks = -(-int(context_lens.max()) // block_size)
        gather = Gather(batch.block_tables[rows, :blocks], block_size, shape)
        cells = torch.arange(gather.length, device=device)
        mask = torch.zeros(*tokens.shape, len(cells), dtype=shape.dtype, device=device)
        mask.masked_fill_(cells > batch.positions[tokens].unsqueeze(-1), -torch.inf)
        mask = mask.unsqueeze(1)
    return ChunkGroup(tokens, valid, tokens.flatten()[valid], gather, mask)
