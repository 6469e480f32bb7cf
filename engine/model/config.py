"""The facts of a Llama-family model: sizes, rotary frequencies, weights and their shapes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

ARCHITECTURES = ("llama", "mistral", "qwen2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One decoder-only graph: RMSNorm, rotary GQA attention, gated SiLU MLP.

    Mistral without a sliding window is this graph; Qwen2 adds biases to q, k and v.
    """

    architecture: str  # one of ARCHITECTURES
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int  # tokens, prompt and output together
    norm_eps: float
    rope_inv_freq: tuple[float, ...]  # [head_dim / 2] radians per position
    tied_embeddings: bool  # the output layer is the embedding matrix
    qkv_bias: bool = False
    output_bias: bool = False  # on the attention's output projection

    def parameters(self) -> int:
        """Number of weights, tied ones counted once."""
        return sum(prod(shape) for shape in weight_shapes(self).values())

    def weight_bytes(self, element_bytes: int) -> int:
        """Bytes of all weights when each takes `element_bytes`."""
        return self.parameters() * element_bytes

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of K and V that one token keeps over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name (as Hugging Face writes it) and shape of every weight that the graph needs."""
    hidden, q, kv = (
        config.hidden_size,
        config.num_heads * config.head_dim,
        config.num_kv_heads * config.head_dim,
    )
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (config.intermediate_size, hidden),
        "mlp.up_proj.weight": (config.intermediate_size, hidden),
        "mlp.down_proj.weight": (hidden, config.intermediate_size),
    }
    if config.qkv_bias:
        layer |= {
            "self_attn.q_proj.bias": (q,),
            "self_attn.k_proj.bias": (kv,),
            "self_attn.v_proj.bias": (kv,),
        }
    if config.output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def plain_inv_freq(theta: float, head_dim: int) -> tuple[float, ...]:
    """Rotary frequencies theta^(-2i/d) (Su et al., RoFormer, arXiv 2104.09864)."""
    return tuple(theta ** (-2 * i / head_dim) for i in range(head_dim // 2))


def scaled_inv_freq(inv_freq: Sequence[float], factors: Sequence[float]) -> tuple[float, ...]:
    """Frequencies divided one by one, as GGUF stores a long-context scaling."""
    return tuple(freq / factor for freq, factor in zip(inv_freq, factors, strict=True))


def llama3_inv_freq(
    inv_freq: Sequence[float],
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_context: int,
) -> tuple[float, ...]:
    """Llama 3.1's long-context scaling: long wavelengths divided by `factor`, short ones kept,
    those between blended linearly (as in the model's reference code)."""

    def scaled(freq: float) -> float:
        turns = original_context * freq / (2 * math.pi)  # over the original context
        keep = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        keep = min(1.0, max(0.0, keep))
        return keep * freq + (1 - keep) * freq / factor

    return tuple(map(scaled, inv_freq))
