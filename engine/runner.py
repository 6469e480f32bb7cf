"""From a plan to logits: lays the planned sequences out as one flat batch and runs the model."""

from typing import Protocol

import numpy as np
import torch

from surgetank.engine.kernels.attention import KVCache
from surgetank.engine.kv.manager import Copy
from surgetank.engine.model.batch import ForwardBatch
from surgetank.engine.sequence import Sequence

Chunk = tuple[Sequence, int]  # a sequence and how many of its tokens to compute


class Model(Protocol):
    """What the runner needs of a model."""

    def __call__(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
        """Logits [R, vocab] for `batch.sample_at`."""


class Runner:
    """The only one that touches the device in a step."""

    def __init__(self, model: Model, cache: KVCache, device: torch.device) -> None:
        self._model = model
        self._cache = cache
        self.device = device

    @torch.inference_mode()
    def move(self, swaps_out: list[Copy], swaps_in: list[Copy], copies: list[Copy]) -> None:
        """Blocks to the swap pool, from there, and on the device: in this order, for what leaves
        makes room for what comes. All before forward()."""
        if swaps_out:
            self._cache.swap_out(*torch.tensor(swaps_out).unbind(1))
        if swaps_in:
            self._cache.swap_in(*torch.tensor(swaps_in).unbind(1))
        if copies:
            self._cache.copy_blocks(*torch.tensor(copies, device=self.device).unbind(1))

    def release_swap_pool(self) -> bool:
        """Give the swap pool's host memory back for good; False when there is none."""
        return self._cache.release_host() > 0

    def release_reserve(self) -> bool:
        """Give back device memory that torch holds and does not use; False when there is none."""
        if self.device.type != "cuda":
            return False
        before = torch.cuda.memory_reserved(self.device)
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(self.device) < before

    @torch.inference_mode()
    def forward(self, decode: list[Sequence], prefill: list[Chunk]) -> torch.Tensor:
        """Logits for each sequence that has all its tokens computed after this, in that order."""
        batch = flat_batch(decode, prefill, self._cache.block_size, self.device)
        return self._model(batch, self._cache)


def flat_batch(
    decode: list[Sequence], prefill: list[Chunk], block_size: int, device: torch.device
) -> ForwardBatch:
    """The step's tensors, put together in numpy so that no token is touched one by one."""
    chunks = [(sequence, 1) for sequence in decode] + prefill
    stored = np.array([sequence.table.stored for sequence, _ in chunks])
    counts = np.array([count for _, count in chunks])
    ends = counts.cumsum()
    starts = ends - counts
    owners = np.arange(len(chunks)).repeat(counts)
    positions = np.arange(ends[-1]) - (starts - stored).repeat(counts)
    tables = _tables(chunks, block_size)
    slots = tables[owners, positions // block_size] * block_size + positions % block_size
    complete = [count == sequence.remaining for sequence, count in chunks]

    def tensor(array: object) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.int64).to(device, non_blocking=True)

    return ForwardBatch(
        token_ids=tensor(_token_ids(decode, prefill)),
        positions=tensor(positions),
        slots=tensor(slots),
        query_starts=tensor(np.concatenate(([0], ends))),
        query_lens=tensor(counts),
        context_lens=tensor(stored + counts),
        block_tables=tensor(tables),
        sample_at=tensor((ends - 1)[complete]),
        num_decode=len(decode),
        max_query_len=int(counts.max()),
        max_context_len=int((stored + counts).max()),
    )


def _token_ids(decode: list[Sequence], prefill: list[Chunk]) -> list[int]:
    ids = [sequence.tokens[-1] for sequence in decode]
    for sequence, count in prefill:
        ids += sequence.tokens[sequence.table.stored : sequence.table.stored + count]
    return ids


def _tables(chunks: list[Chunk], block_size: int) -> np.ndarray:
    """Block tables [S, blocks of the longest context], padded with 0."""
    needed = [-(-(sequence.table.stored + count) // block_size) for sequence, count in chunks]
    tables = np.zeros((len(chunks), max(needed)), dtype=np.int64)
    for row, ((sequence, _), blocks) in enumerate(zip(chunks, needed)):
        tables[row, :blocks] = sequence.table.blocks[:blocks]
    return tables
