"""The tensors and the cache of one layer of attention, and the tensors of one feed-forward part."""

from surgetank.control.capacity.architecture import UNSPLIT, Attention, Cache, Latent, Tensor
from surgetank.control.capacity.families import Family
from surgetank.control.capacity.keys import Keys


def vector(name: str, size: int, ways: int = UNSPLIT) -> Tensor:
    """A bias or a norm: never quantised."""
    return Tensor(name, size, ways=ways, linear=False)


def head_dim(keys: Keys) -> int:
    """Features of one head: said, or the hidden size shared out."""
    return keys.whole(
        "head_dim", default=max(1, keys.whole("hidden_size") // keys.whole("num_attention_heads"))
    )


def attention(
    keys: Keys, family: Family, prefix: str, window: int | None
) -> tuple[list[Tensor], Cache]:
    """One layer of multi-head, grouped or latent attention."""
    if keys.has("kv_lora_rank"):
        return _latent(keys, prefix)
    hidden, heads, size = (
        keys.whole("hidden_size"),
        keys.whole("num_attention_heads"),
        head_dim(keys),
    )
    kv_heads = keys.whole("num_key_value_heads", default=heads)
    queries = heads * size * (2 if family.gated_query else 1)
    tensors = [
        Tensor(f"{prefix}.q_proj", queries, hidden),
        Tensor(f"{prefix}.k_proj", kv_heads * size, hidden, ways=kv_heads),
        Tensor(f"{prefix}.v_proj", kv_heads * size, hidden, ways=kv_heads),
        Tensor(f"{prefix}.o_proj", hidden, heads * size),
    ]
    said = keys.flag("attention_bias", default=False)
    if family.qkv_bias or said:
        tensors += [
            vector(f"{tensor.name}.bias", tensor.rows, tensor.ways) for tensor in tensors[:3]
        ]
    if family.out_bias or (said and not family.qkv_bias):
        tensors.append(vector(f"{prefix}.o_proj.bias", hidden))
    if family.qk_norm or keys.flag("use_qk_norm", default=False):
        tensors += [vector(f"{prefix}.{side}_norm", size) for side in "qk"]
    if family.sinks:
        tensors.append(vector(f"{prefix}.sinks", heads, heads))
    return tensors, Attention(kv_heads, size, size, window)


def _latent(keys: Keys, prefix: str) -> tuple[list[Tensor], Cache]:
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    rank, rope = keys.whole("kv_lora_rank"), keys.whole("qk_rope_head_dim")
    nope, value = keys.whole("qk_nope_head_dim"), keys.whole("v_head_dim")
    query_rank = keys.optional("q_lora_rank", least=0)
    queries = heads * (nope + rope)
    if query_rank:
        tensors = [
            Tensor(f"{prefix}.q_a_proj", query_rank, hidden, ways=UNSPLIT),
            vector(f"{prefix}.q_a_layernorm", query_rank),
            Tensor(f"{prefix}.q_b_proj", queries, query_rank),
        ]
    else:
        tensors = [Tensor(f"{prefix}.q_proj", queries, hidden)]
    tensors += [
        Tensor(f"{prefix}.kv_a_proj_with_mqa", rank + rope, hidden, ways=UNSPLIT),
        vector(f"{prefix}.kv_a_layernorm", rank),
        Tensor(f"{prefix}.kv_b_proj", heads * (nope + value), rank),
        Tensor(f"{prefix}.o_proj", hidden, heads * value),
    ]
    return tensors, Latent(rank, rope)


def feed_forward(keys: Keys, family: Family, index: int) -> tuple[list[Tensor], int]:
    """The tensors of a layer's feed-forward part, and the features one token passes in it."""
    prefix = f"model.layers.{index}.mlp"
    experts = keys.optional("n_routed_experts", "num_experts", "num_local_experts", least=0)
    if not experts or not _routed(keys, index):
        ffn = keys.whole("intermediate_size_mlp", "shared_intermediate_size", "intermediate_size")
        return _mlp(family, prefix, keys.whole("hidden_size"), ffn), ffn
    hidden = keys.whole("hidden_size")
    ffn = keys.whole("moe_intermediate_size", "intermediate_size")
    used = keys.whole("num_experts_per_tok", "num_experts_per_token", "moe_top_k")
    tensors = [
        Tensor(f"{prefix}.gate", experts, hidden, ways=UNSPLIT, linear=False),
        Tensor(f"{prefix}.experts.gate_up_proj", 2 * ffn, hidden, experts),
        Tensor(f"{prefix}.experts.down_proj", hidden, ffn, experts),
    ]
    if family.expert_bias:
        biases = experts * (1 + 2 * ffn + hidden)
        tensors.append(vector(f"{prefix}.experts.bias", biases, experts))
    if keys.text("topk_method") == "noaux_tc":
        tensors.append(vector(f"{prefix}.gate.e_score_correction_bias", experts))
    shared = _shared(keys, ffn)
    if shared:
        tensors += _mlp(family, f"{prefix}.shared_experts", hidden, shared)
    if keys.has("shared_expert_intermediate_size"):
        tensors.append(vector(f"{prefix}.shared_expert_gate", hidden))
    return tensors, used * ffn + shared


def _shared(keys: Keys, ffn: int) -> int:
    """Features of the experts that every token passes."""
    if keys.text("model_type") == "llama4_text":
        return ffn
    size = keys.optional("shared_expert_intermediate_size", "shared_intermediate_size", least=0)
    if size is not None:
        return size
    return keys.whole("n_shared_experts", default=0, least=0) * ffn


def _routed(keys: Keys, index: int) -> bool:
    """Whether a layer of a mixture model routes, or is a plain one."""
    if index < keys.whole("first_k_dense_replace", default=0, least=0):
        return False
    if index in (keys.items("mlp_only_layers") or []):
        return False
    step = keys.whole("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    if (index + 1) % step != 0:
        return False
    period = keys.whole("expert_layer_period", default=1)
    return index % period == keys.whole("expert_layer_offset", default=0, least=0) % period


def _mlp(family: Family, prefix: str, hidden: int, ffn: int) -> list[Tensor]:
    names = ("gate_proj", "up_proj") if family.gated_mlp else ("fc1",)
    tensors = [Tensor(f"{prefix}.{name}", ffn, hidden) for name in names]
    tensors.append(Tensor(f"{prefix}.down_proj", hidden, ffn))
    if family.mlp_bias:
        tensors += [vector(f"{tensor.name}.bias", tensor.rows) for tensor in tensors]
    return tensors
