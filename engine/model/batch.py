"""One step's work as flat tensors: the contract between the runner and a model.

T tokens of S sequences are laid end to end (prefill chunks and single decode tokens alike).
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """All tensors live on the model's device; integer tensors are int64 unless said otherwise.

    Sequences are ordered decode first: the first `num_decode` of the S have one query token.
    """

    token_ids: torch.Tensor  # [T]
    positions: torch.Tensor  # [T] position of each token in its own sequence
    slots: torch.Tensor  # [T] where its K and V go: block * block_size + offset
    query_starts: torch.Tensor  # [S + 1] first token of each sequence in the flat batch
    query_lens: torch.Tensor  # [S]
    context_lens: torch.Tensor  # [S] tokens that attention reads, this step's own included
    block_tables: torch.Tensor  # [S, blocks of the longest] padded with 0
    sample_at: torch.Tensor  # [R] flat positions whose logits are wanted
    num_decode: int
    max_query_len: int
    max_context_len: int
