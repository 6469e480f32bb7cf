"""The attention seam: who owns the layout of K and V, and attends over paged blocks.

A backend allocates a cache; the cache plans one step; the step attends layer by layer.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from surgetank.engine.model.batch import ForwardBatch


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What a backend must know of a model (or of one rank's slice of its heads)."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


class AttentionStep(Protocol):
    """One step's attention: indices and masks, built once and shared by all layers."""

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Store this step's k and v, then attend. q is [T, heads, head_dim], k and v are
        [T, kv_heads, head_dim], the result is [T, heads, head_dim]."""


class KVCache(Protocol):
    """K and V of all layers in blocks of tokens. Block numbers are int64 tensors."""

    @property
    def num_blocks(self) -> int:
        """Blocks on the device."""

    @property
    def host_blocks(self) -> int:
        """Blocks of the swap pool in host memory."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    def plan(self, batch: ForwardBatch) -> AttentionStep:
        """Prepare one step over this cache."""

    def copy_blocks(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy whole blocks on the device, all layers (copy-on-write)."""

    def swap_out(self, blocks: torch.Tensor, host: torch.Tensor) -> None:
        """Copy blocks from the device into blocks of the swap pool."""

    def swap_in(self, host: torch.Tensor, blocks: torch.Tensor) -> None:
        """Copy blocks of the swap pool back into blocks on the device."""

    def release_host(self) -> int:
        """Give the swap pool's memory back for good. Returns how many bytes that were."""


class AttentionBackend(Protocol):
    """One way to attend over paged blocks."""

    def allocate(
        self, shape: AttentionShape, num_blocks: int, block_size: int, host_blocks: int = 0
    ) -> KVCache:
        """A zeroed cache. MemoryError or torch's own out-of-memory error when it does not fit."""
