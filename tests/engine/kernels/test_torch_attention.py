"""Paged attention equals attention written out plainly; blocks move whole."""

import math
import random

import pytest
import torch

from surgetank.engine.kernels.attention import AttentionShape
from surgetank.engine.kernels.torch_attention import TorchAttention, TorchKVCache
from surgetank.engine.kernels.torch_plan import plan_groups, split_by_length
from surgetank.engine.model.batch import ForwardBatch

SHAPE = AttentionShape(
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    dtype=torch.float32,
    device=torch.device("cpu"),
)
BLOCK = 16


class History:
    """Sequences whose keys and values are known in full, beside the cache that holds them."""

    def __init__(self, contexts: list[int], queries: list[int], seed: int = 0) -> None:
        self.contexts, self.queries = contexts, queries
        generator = torch.Generator().manual_seed(seed)
        self.keys = [torch.randn(n, 2, 8, generator=generator) for n in contexts]
        self.values = [torch.randn(n, 2, 8, generator=generator) for n in contexts]
        self.q = torch.randn(sum(queries), 6, 8, generator=generator)
        blocks = list(range(sum(-(-n // BLOCK) for n in contexts) + 3))
        random.Random(seed).shuffle(blocks)
        self.tables = [[blocks.pop() for _ in range(-(-n // BLOCK))] for n in contexts]
        self.cache = TorchAttention().allocate(SHAPE, sum(map(len, self.tables)) + 3, BLOCK)

    def batch(self, starts: list[int], ends: list[int], num_decode: int) -> ForwardBatch:
        places = [list(range(start, end)) for start, end in zip(starts, ends)]
        slots = [
            table[p // BLOCK] * BLOCK + p % BLOCK
            for table, own in zip(self.tables, places)
            for p in own
        ]
        lens = torch.tensor([len(own) for own in places])
        width = max(map(len, self.tables))
        return ForwardBatch(
            token_ids=torch.zeros(len(slots), dtype=torch.int64),
            positions=torch.tensor([p for own in places for p in own]),
            slots=torch.tensor(slots),
            query_starts=torch.cat([torch.zeros(1, dtype=torch.int64), lens.cumsum(0)]),
            query_lens=lens,
            context_lens=torch.tensor(ends),
            block_tables=torch.tensor([t + [0] * (width - len(t)) for t in self.tables]),
            sample_at=lens.cumsum(0) - 1,
            num_decode=num_decode,
            max_query_len=int(lens.max()),
            max_context_len=max(ends),
        )

    def attend(self, num_decode: int, layer: int = 1) -> torch.Tensor:
        """Store what came before, then attend with the last `queries` tokens of each."""
        cuts = [n - q for n, q in zip(self.contexts, self.queries)]
        old = [i for i, cut in enumerate(cuts) if cut]
        if old:
            before = History.batch(self._only(old), [0] * len(old), [cuts[i] for i in old], 0)
            k = torch.cat([self.keys[i][: cuts[i]] for i in old])
            v = torch.cat([self.values[i][: cuts[i]] for i in old])
            self.cache.plan(before).attend(layer, k.repeat(1, 3, 1), k, v)
        step = self.cache.plan(self.batch(cuts, self.contexts, num_decode))
        k = torch.cat([key[cut:] for key, cut in zip(self.keys, cuts)])
        v = torch.cat([value[cut:] for value, cut in zip(self.values, cuts)])
        return step.attend(layer, self.q, k, v)

    def expected(self) -> torch.Tensor:
        """softmax(q k / sqrt(d)) v, one query token at a time."""
        rows, place = [], 0
        for key, value, n, count in zip(self.keys, self.values, self.contexts, self.queries):
            for last in range(n - count, n):
                k = key[: last + 1].repeat_interleave(3, 1)
                v = value[: last + 1].repeat_interleave(3, 1)
                scores = torch.einsum("hd,nhd->hn", self.q[place], k) / math.sqrt(8)
                rows.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), v))
                place += 1
        return torch.stack(rows)

    def _only(self, members: list[int]) -> "History":
        part = object.__new__(History)
        part.tables = [self.tables[i] for i in members]
        return part


CASES = {
    "decode, equal lengths": ([32, 32, 32], [1, 1, 1], 3),
    "decode, every fill of a block": (list(range(1, 35)), [1] * 34, 34),
    "decode, lengths far apart": ([5, 9, 700, 12, 1200, 3], [1] * 6, 6),
    "whole prompts": ([1, 7, 30, 31, 64], [1, 7, 30, 31, 64], 0),
    "padding beside another group": ([30, 5, 31, 7], [30, 5, 31, 7], 0),
    "the shortest last": ([31, 30], [31, 30], 0),
    "many tiles": ([300, 290], [200, 190], 0),
    "later chunks": ([40, 100, 101], [20, 36, 1], 0),
    "everything": ([50, 3, 20, 80, 9], [1, 1, 20, 30, 9], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_attention_written_out(name: str) -> None:
    contexts, queries, num_decode = CASES[name]
    history = History(contexts, queries)
    torch.testing.assert_close(history.attend(num_decode), history.expected())


def test_layers_do_not_share_cells() -> None:
    history = History([20, 20], [1, 1])
    first = history.attend(2, layer=0)
    history.keys = [key * -1 for key in history.keys]
    history.attend(2, layer=1)
    again = history.cache.plan(history.batch([19, 19], [20, 20], 2))
    k = torch.stack([-key[-1] for key in history.keys])
    v = torch.stack([value[-1] for value in history.values])
    torch.testing.assert_close(again.attend(0, history.q, k, v), first)


@pytest.mark.parametrize(
    ("counts", "cost", "ranges"),
    [
        ([4, 4, 4], 0, [(0, 3)]),
        ([1, 10], 8, [(1, 2), (0, 1)]),
        ([1, 10], 9, [(0, 2)]),
        ([1] * 9 + [20] * 9, 64, [(9, 18), (0, 9)]),
        ([1, 1, 30, 30, 90, 90], 10, [(4, 6), (2, 4), (0, 2)]),
        ([5], 0, [(0, 1)]),
    ],
)
def test_lengths_are_split_where_padding_would_cost_more(
    counts: list[int], cost: int, ranges: list[tuple[int, int]]
) -> None:
    assert split_by_length(counts, cost) == ranges


def test_a_batch_of_like_lengths_is_one_group() -> None:
    history = History([100, 120, 140], [1, 1, 1])
    batch = history.batch([99, 119, 139], [100, 120, 140], 3)
    (group,) = plan_groups(batch, BLOCK, SHAPE)
    (tile,) = group.tiles
    assert (tile.mask == 0).sum(-1).flatten().tolist() == [100, 120, 140]


def filled(host_blocks: int = 0) -> tuple[TorchKVCache, torch.Tensor]:
    cache = TorchAttention().allocate(SHAPE, 6, BLOCK, host_blocks)
    cells = torch.stack(cache.cells).view(2, 6, -1)
    for layer in cache.cells:
        layer.copy_(torch.randn_like(layer))
    return cache, torch.stack(cache.cells).view_as(cells)


def contents(cache: TorchKVCache) -> torch.Tensor:
    return torch.stack(cache.cells).view(2, 6, -1)


def test_copy_blocks_copies_every_layer() -> None:
    cache, before = filled()
    cache.copy_blocks(torch.tensor([0, 4]), torch.tensor([3, 1]))
    after = contents(cache)
    assert torch.equal(after[:, [3, 1]], before[:, [0, 4]])
    assert torch.equal(after[:, [0, 2, 4, 5]], before[:, [0, 2, 4, 5]])


def test_swapped_blocks_come_back_anywhere_unchanged() -> None:
    cache, before = filled(host_blocks=2)
    assert cache.host_blocks == 2
    cache.swap_out(torch.tensor([5, 2]), torch.tensor([1, 0]))
    cache.copy_blocks(torch.tensor([0, 0]), torch.tensor([5, 2]))
    cache.swap_in(torch.tensor([0, 1]), torch.tensor([3, 4]))
    assert torch.equal(contents(cache)[:, [3, 4]], before[:, [2, 5]])
