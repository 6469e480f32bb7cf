"""The smallest possible runner: paged sequences with shuffled blocks, stepped by hand."""

import random
from dataclasses import dataclass, field

import torch

from surgetank.engine.kernels.attention import KVCache
from surgetank.engine.model.batch import ForwardBatch
from surgetank.engine.model.llama import LlamaModel


@dataclass
class Paged:
    """One sequence: the blocks it owns and how many tokens they hold."""

    stored: int = 0
    blocks: list[int] = field(default_factory=list)


class Driver:
    """Builds batches over one cache whose free blocks are handed out in random order."""

    def __init__(self, model: LlamaModel, num_blocks: int, block_size: int = 16) -> None:
        self.model = model
        self.cache: KVCache = model.allocate_cache(num_blocks, block_size)
        self._free = list(range(num_blocks))
        random.Random(0).shuffle(self._free)

    def step(
        self, work: list[tuple[Paged, list[int]]], all_positions: bool = False
    ) -> torch.Tensor:
        """Run one batch, decoding sequences first; logits of each last token, or of every token."""
        with torch.inference_mode():
            return self.model(self.batch(work, all_positions), self.cache)

    def greedy(self, prompts: list[list[int]], steps: int) -> list[list[int]]:
        """Decode all prompts together; each one's first `steps` tokens."""
        sequences = [Paged() for _ in prompts]
        feed, outputs = prompts, [[] for _ in prompts]  # type: list[list[int]], list[list[int]]
        for _ in range(steps):
            best = self.step(list(zip(sequences, feed))).argmax(-1).tolist()
            feed = [[token] for token in best]
            outputs = [output + new for output, new in zip(outputs, feed)]
        return outputs

    def batch(self, work: list[tuple[Paged, list[int]]], all_positions: bool) -> ForwardBatch:
        """Give each sequence the blocks it needs, and lay the work out flat."""
        size = self.cache.block_size
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts, contexts = [0], []
        for sequence, new in work:
            sequence_end = sequence.stored + len(new)
            while len(sequence.blocks) * size < sequence_end:
                sequence.blocks.append(self._free.pop())
            places = range(sequence.stored, sequence_end)
            tokens += new
            positions += places
            slots += [sequence.blocks[p // size] * size + p % size for p in places]
            starts.append(len(tokens))
            contexts.append(sequence_end)
            sequence.stored = sequence_end
        width = max(len(sequence.blocks) for sequence, _ in work)
        lens = [len(new) for _, new in work]
        num_decode = next((i for i, n in enumerate(lens) if n > 1), len(lens))
        ends = torch.tensor(starts[1:]) - 1
        return ForwardBatch(
            token_ids=torch.tensor(tokens),
            positions=torch.tensor(positions),
            slots=torch.tensor(slots),
            query_starts=torch.tensor(starts),
            query_lens=torch.tensor(lens),
            context_lens=torch.tensor(contexts),
            block_tables=torch.tensor([s.blocks + [0] * (width - len(s.blocks)) for s, _ in work]),
            sample_at=torch.arange(len(tokens)) if all_positions else ends,
            num_decode=num_decode,
            max_query_len=max(lens),
            max_context_len=max(contexts),
        )
