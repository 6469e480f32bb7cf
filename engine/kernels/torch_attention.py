"""The reference attention in plain torch: gathers the blocks a step needs, then multiplies."""

from dataclasses import dataclass

import torch

from surgetank.engine.kernels.attention import AttentionShape
from surgetank.engine.kernels.torch_plan import Group, plan_groups
from surgetank.engine.model.batch import ForwardBatch


class TorchAttention:
    """Allocates TorchKVCache."""

    def allocate(
        self, shape: AttentionShape, num_blocks: int, block_size: int, host_blocks: int = 0
    ) -> "TorchKVCache":
        return TorchKVCache(shape, num_blocks, block_size, host_blocks)


class TorchKVCache:
    """One pool [layers, blocks, 2 * kv_heads, block_size, head_dim]; K's heads first, then V's.

    A (block, head) pair is one contiguous row, so that one row gather lays out K and V of a whole
    batch head by head, ready for a batched product without any transpose.
    """

    def __init__(
        self, shape: AttentionShape, num_blocks: int, block_size: int, host_blocks: int
    ) -> None:
        self.shape = shape
        self.num_blocks = num_blocks
        self.host_blocks = host_blocks
        self.block_size = block_size
        rest = (2 * shape.num_kv_heads, block_size, shape.head_dim)
        # Zeroed, because a masked cell is still multiplied: it must never hold a NaN.
        self._pool = torch.zeros(
            (shape.num_layers, num_blocks, *rest), dtype=shape.dtype, device=shape.device
        )
        self._host = torch.zeros(
            (shape.num_layers, host_blocks, *rest),
            dtype=shape.dtype,
            pin_memory=shape.device.type == "cuda" and host_blocks > 0,
        )
        self.rows = self._pool.view(shape.num_layers, -1, block_size * shape.head_dim).unbind()
        self.cells = self._pool.view(shape.num_layers, -1, shape.head_dim).unbind()

    def plan(self, batch: ForwardBatch) -> "TorchStep":
        heads = torch.arange(2 * self.shape.num_kv_heads, device=batch.slots.device)
        block, offset = batch.slots // self.block_size, batch.slots % self.block_size
        cells = (block[:, None] * len(heads) + heads) * self.block_size + offset[:, None]
        k_cells, v_cells = cells.chunk(2, dim=1)
        groups = plan_groups(batch, self.block_size, self.shape)
        return TorchStep(self, k_cells.flatten(), v_cells.flatten(), groups)

    def copy_blocks(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self._pool[:, target] = self._pool[:, source]

    def swap_out(self, blocks: torch.Tensor, host: torch.Tensor) -> None:
        self._host[:, host] = self._pool[:, blocks].to(self._host.device)

    def swap_in(self, host: torch.Tensor, blocks: torch.Tensor) -> None:
        self._pool[:, blocks] = self._host[:, host].to(self._pool.device)

    def release_host(self) -> int:
        released = self._host.nbytes
        self._host, self.host_blocks = self._host[:, :0].clone(), 0
        return released


@dataclass(frozen=True, slots=True)
class TorchStep:
    """Where the step's K and V go, and its sequences in groups of similar length."""

    cache: TorchKVCache
    k_cells: torch.Tensor  # [T * kv_heads]
    v_cells: torch.Tensor
    groups: list[Group]

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        cells, rows = self.cache.cells[layer], self.cache.rows[layer]
        cells.index_copy_(0, self.k_cells, k.reshape(-1, k.shape[-1]))
        cells.index_copy_(0, self.v_cells, v.reshape(-1, v.shape[-1]))
        scaled = q * q.shape[-1] ** -0.5
        out = torch.empty_like(scaled)
        for group in self.groups:
            group.attend(rows, scaled, out)
        return out
