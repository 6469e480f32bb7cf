"""The forward pass of a Llama-family model over one flat batch."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import torch
from torch.nn import functional

from surgetank.engine.kernels.attention import (
    AttentionBackend,
    AttentionShape,
    AttentionStep,
    KVCache,
)
from surgetank.engine.kernels.linear import Linear, LinearBackend
from surgetank.engine.model.batch import ForwardBatch
from surgetank.engine.model.config import ModelConfig
from surgetank.engine.operators import OperatorMeter
from surgetank.telemetry.vocabulary import Operator

Weights = Callable[[str], torch.Tensor]  # a weight by name, in the model's dtype, on its device


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer, its projections fused and prepared."""

    attention_norm: torch.Tensor
    qkv: Linear
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear

    def timed(self, meter: OperatorMeter) -> "Layer":
        """The same, its products timed."""
        linears = (self.qkv, self.output, self.gate_up, self.down)
        qkv, output, gate_up, down = (meter.wrap(Operator.GEMM, each) for each in linears)
        return Layer(self.attention_norm, qkv, output, self.mlp_norm, gate_up, down)


class LlamaModel:
    """Weights on one device; call it inside torch.inference_mode()."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        attention: AttentionBackend,
        linear: LinearBackend,
    ) -> None:
        self.config = config
        self._attention = attention
        self._embedding = weights("model.embed_tokens.weight")
        self._layers = [
            _layer(config, weights, linear, f"model.layers.{index}.")
            for index in range(config.num_layers)
        ]
        self._norm = weights("model.norm.weight")
        head = self._embedding if config.tied_embeddings else weights("lm_head.weight")
        self._head = linear.prepare(head)
        self._cos, self._sin = _rotary_tables(config, self.device)
        self._normalise = _rms_norm

    @property
    def device(self) -> torch.device:
        return self._embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self._embedding.dtype

    def allocate_cache(self, num_blocks: int, block_size: int, host_blocks: int = 0) -> KVCache:
        """A KV cache of this model's shape; `host_blocks` is the size of its swap pool."""
        config = self.config
        shape = AttentionShape(
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=self.dtype,
            device=self.device,
        )
        return self._attention.allocate(shape, num_blocks, block_size, host_blocks)

    def timed(self, meter: OperatorMeter) -> "LlamaModel":
        """The same model over the same weights, its products and norms timed."""
        twin = copy(self)
        twin._layers = [layer.timed(meter) for layer in self._layers]
        twin._head = meter.wrap(Operator.GEMM, self._head)
        twin._normalise = meter.wrap(Operator.NORM, _rms_norm)
        return twin

    def __call__(self, batch: ForwardBatch, cache: KVCache) -> torch.Tensor:
        """Logits [R, vocab] for `batch.sample_at`; K and V of all T tokens are in `cache` after."""
        step = cache.plan(batch)
        cos = self._cos[batch.positions].to(self.dtype).unsqueeze(1)
        sin = self._sin[batch.positions].to(self.dtype).unsqueeze(1)
        x = functional.embedding(batch.token_ids, self._embedding)
        for index, layer in enumerate(self._layers):
            normed = self._normalise(x, layer.attention_norm, self.config.norm_eps)
            x = x + layer.output(self._attend(step, index, layer.qkv(normed), cos, sin))
            gate, up = layer.gate_up(
                self._normalise(x, layer.mlp_norm, self.config.norm_eps)
            ).chunk(2, -1)
            x = x + layer.down(functional.silu(gate).mul_(up))
        return self._head(self._normalise(x[batch.sample_at], self._norm, self.config.norm_eps))

    def _attend(
        self,
        step: AttentionStep,
        index: int,
        qkv: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        heads, kv_heads = self.config.num_heads, self.config.num_kv_heads
        split = qkv.view(len(qkv), heads + 2 * kv_heads, self.config.head_dim)
        rotated = _rotate(split[:, : heads + kv_heads], cos, sin)
        q, k, v = rotated[:, :heads], rotated[:, heads:], split[:, heads + kv_heads :]
        return step.attend(index, q, k, v).flatten(1)


def _layer(config: ModelConfig, weights: Weights, linear: LinearBackend, prefix: str) -> Layer:
    def fused(*names: str, bias: bool = False) -> Linear:
        weight = torch.cat([weights(f"{prefix}{name}.weight") for name in names])
        biases = [weights(f"{prefix}{name}.bias") for name in names] if bias else None
        return linear.prepare(weight, None if biases is None else torch.cat(biases))

    return Layer(
        attention_norm=weights(prefix + "input_layernorm.weight"),
        qkv=fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", bias=config.qkv_bias),
        output=fused("self_attn.o_proj", bias=config.output_bias),
        mlp_norm=weights(prefix + "post_attention_layernorm.weight"),
        gate_up=fused("mlp.gate_proj", "mlp.up_proj"),
        down=fused("mlp.down_proj"),
    )


def _rotary_tables(config: ModelConfig, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [context_length, head_dim] in float32; sin carries the sign of the half swap."""
    inv_freq = torch.tensor(config.rope_inv_freq, dtype=torch.float32, device=device)
    positions = torch.arange(config.context_length, dtype=torch.float32, device=device)
    angles = torch.outer(positions, inv_freq)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding over the two halves of the last axis, (x1, x2) by (x2, x1)."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm; torch computes it in float32 (Zhang & Sennrich, arXiv 1910.07467)."""
    return functional.rms_norm(x, weight.shape, weight, eps)
