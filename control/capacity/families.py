"""What a model family leaves unsaid in its config.json: biases, norms, and which layers differ.

Facts of the families' reference modelling code, one row each; everything else is read from keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from surgetank.control.capacity.keys import Keys
from surgetank.control.capacity.units import CapacityError


@dataclass(frozen=True, slots=True)
class Family:
    """The traits that decide a count; the defaults are a Llama-like decoder's."""

    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    gated_mlp: bool = True  # three matrices instead of two
    qk_norm: bool = False
    gated_query: bool = False  # the query projection also makes an output gate
    norms: int = 2  # per layer
    norm_bias: bool = False
    tied: bool = False  # when the config does not say
    sinks: bool = False  # one learnt logit per head
    expert_bias: bool = False
    windows: str = "all"  # which layers a window applies to: all, pattern, tail
    pattern: int = 2  # every pattern-th layer attends in full
    recurrent: str = ""  # the kind of the layers that are not attention
    defaults: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


_PHI = Family(
    qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True, gated_mlp=False, norms=1,
    norm_bias=True,
)  # fmt: skip
_GEMMA3 = Family(
    qk_norm=True, norms=4, tied=True, windows="pattern", pattern=6,
    defaults=MappingProxyType({
        "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "max_position_embeddings": 131_072,
    }),
)  # fmt: skip
_QWEN3_NEXT = Family(qk_norm=True, gated_query=True, recurrent="delta", pattern=4)
_LLAMA = Family()
_QWEN2 = Family(qkv_bias=True, windows="tail")
_QWEN3 = Family(qk_norm=True, windows="tail")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": _LLAMA,
        "llama4_text": _LLAMA,
        "mistral": _LLAMA,
        "mixtral": _LLAMA,
        "phi3": _LLAMA,
        "deepseek_v2": _LLAMA,
        "deepseek_v3": _LLAMA,
        "kimi_k2": _LLAMA,
        "glm4_moe": _LLAMA,
        "qwen2": _QWEN2,
        "qwen2_moe": _QWEN2,
        "qwen3": _QWEN3,
        "qwen3_moe": _QWEN3,
        "qwen3_next": _QWEN3_NEXT,
        "gemma": Family(tied=True),
        "gemma2": Family(norms=4, tied=True, windows="pattern"),
        "gemma3_text": _GEMMA3,
        "cohere2": Family(norms=1, tied=True, windows="pattern", pattern=4),
        "phi": _PHI,
        "starcoder2": Family(
            qkv_bias=True, out_bias=True, mlp_bias=True, gated_mlp=False, norm_bias=True, tied=True
        ),
        "gpt_oss": Family(
            qkv_bias=True, out_bias=True, sinks=True, expert_bias=True, windows="pattern"
        ),
        "jamba": Family(recurrent="mamba"),
        "mamba": Family(recurrent="mamba", norms=1, tied=True),
        "falcon_mamba": Family(recurrent="mamba", norms=1, tied=True),
        "mamba2": Family(recurrent="mamba2", norms=1),
        "bamba": Family(recurrent="mamba2"),
        "granitemoehybrid": Family(recurrent="mamba2"),
    }
)

_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
}


def layer_kinds(keys: Keys, name: str, family: Family, layers: int) -> tuple[str, ...]:
    """ "full", "window" or "recurrent" for each layer.

    CapacityError for a kind that is not known, or recurrent layers of an unknown family.
    """
    listed = keys.items("layer_types") or keys.items("layers_block_type")
    if listed is not None:
        if len(listed) != layers:
            raise CapacityError(
                f"{keys.where}: layer_types lists {len(listed)} layers, num_hidden_layers {layers}"
            )
        strange = sorted({str(kind) for kind in listed} - set(_KINDS))
        if strange:
            raise keys.wrong("layer_types", strange[0], ", ".join(_KINDS))
        kinds = tuple(_KINDS[str(kind)] for kind in listed)
        if "recurrent" in kinds and not family.recurrent:
            raise CapacityError(
                f"{keys.where}: model_type {name!r} has recurrent layers of a kind not known here"
            )
        return kinds
    if family.recurrent:
        return tuple(_hybrid(keys, family, index) for index in range(layers))
    return tuple(_windowed(keys, family, index) for index in range(layers))


def _hybrid(keys: Keys, family: Family, index: int) -> str:
    indices = keys.items("attn_layer_indices")
    if indices is not None:
        return "full" if index in indices else "recurrent"
    if keys.has("attn_layer_period"):
        period = keys.whole("attn_layer_period")
        offset = keys.whole("attn_layer_offset", default=0, least=0)
        return "full" if index % period == offset else "recurrent"
    if family.recurrent == "delta":
        period = keys.whole("full_attention_interval", default=family.pattern)
        return "full" if (index + 1) % period == 0 else "recurrent"
    return "recurrent"


def _windowed(keys: Keys, family: Family, index: int) -> str:
    if keys.has("attention_chunk_size"):  # local chunks, with full layers in between
        ropes = keys.items("no_rope_layers") or []
        full = ropes[index] == 0 if index < len(ropes) else (index + 1) % 4 == 0
        return "full" if full else "window"
    if not keys.has("sliding_window"):
        return "full"
    if family.windows == "tail":  # off by default: the key is there and means nothing
        if not keys.flag("use_sliding_window", default=False):
            return "full"
        return "window" if index >= keys.whole("max_window_layers", least=0) else "full"
    if family.windows == "pattern":
        pattern = keys.whole("sliding_window_pattern", default=family.pattern)
        return "full" if (index + 1) % pattern == 0 else "window"
    return "window"
