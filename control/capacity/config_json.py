"""From a model's config.json, as Hugging Face writes it, to its architecture."""

from collections.abc import Mapping

from surgetank.control.capacity.architecture import Architecture, Cache, Tensor
from surgetank.control.capacity.families import FAMILIES, Family, layer_kinds
from surgetank.control.capacity.keys import Keys
from surgetank.control.capacity.layers import attention, feed_forward, vector
from surgetank.control.capacity.quantisation import read_quantisation
from surgetank.control.capacity.recurrent import recurrent
from surgetank.control.capacity.units import WIDTHS, CapacityError

_MOST_LAYERS = 10_000


def read_config(raw: Mapping[str, object], name: str, source: str) -> Architecture:
    """The architecture that a config.json describes; CapacityError names what it lacks."""
    keys, notes = _text_part(raw, source)
    model_type = keys.text("model_type")
    family = FAMILIES.get(model_type)
    if family is None:
        family = FAMILIES["llama"]
        notes.append(f"model_type {model_type or 'missing'!r}: counted as a Llama-like decoder")
    keys = Keys({**family.defaults, **keys.values}, source)
    layers = keys.whole("num_hidden_layers", "n_layer")
    if layers > _MOST_LAYERS:
        raise keys.wrong("num_hidden_layers", layers, f"1 to {_MOST_LAYERS}")
    kinds = layer_kinds(keys, model_type, family, layers)
    tensors, caches, widest = _ends(keys, family), [], 1
    for index, kind in enumerate(kinds):
        of_layer, cache, width = _layer(keys, family, index, kind)
        tensors += of_layer
        caches.append(cache)
        widest = max(widest, width)
    shared = keys.whole("num_kv_shared_layers", default=0, least=0)
    return Architecture(
        name=name,
        source=source,
        family=model_type or "unknown",
        hidden=keys.whole("hidden_size"),
        vocab=keys.whole("vocab_size"),
        heads=keys.whole("num_attention_heads", "num_heads", default=keys.whole("hidden_size")),
        layers=layers,
        widest_mlp=widest,
        max_context=keys.whole("max_position_embeddings", "seq_length", default=2**20),
        dtype=_dtype(raw, keys),
        tensors=tuple(tensors),
        caches=tuple(caches[: layers - shared]),
        quantisation=read_quantisation(
            raw.get("quantization_config") or keys.values.get("quantization_config")
        ),
        notes=tuple(notes),
    )


def _text_part(raw: Mapping[str, object], source: str) -> tuple[Keys, list[str]]:
    """The language model inside a configuration that may wrap it with a vision tower."""
    keys = Keys(raw, source)
    inner = keys.section("text_config")
    if inner is None:
        return keys, []
    tied = (
        {"tie_word_embeddings": raw["tie_word_embeddings"]} if "tie_word_embeddings" in raw else {}
    )
    notes = ["the vision tower is not counted"] if keys.has("vision_config") else []
    return Keys({**tied, **inner.values}, source), notes


def _ends(keys: Keys, family: Family) -> list[Tensor]:
    """Embedding, final norm and output head; a tied head is the embedding once more."""
    hidden, vocab = keys.whole("hidden_size"), keys.whole("vocab_size")
    tensors = [
        Tensor("model.embed_tokens", vocab, hidden, linear=False),
        vector("model.norm", hidden * (2 if family.norm_bias else 1)),
    ]
    if not keys.flag("tie_word_embeddings", default=family.tied):
        tensors.append(Tensor("lm_head", vocab, hidden))
        if family.head_bias:
            tensors.append(vector("lm_head.bias", vocab, vocab))
    return tensors


def _layer(keys: Keys, family: Family, index: int, kind: str) -> tuple[list[Tensor], Cache, int]:
    """One layer: its tensors, what it caches, and the features of its feed-forward part."""
    prefix = f"model.layers.{index}"
    cache: Cache
    if kind == "recurrent":
        tensors, cache = recurrent(keys, family.recurrent, f"{prefix}.mixer")
    else:
        window = keys.whole("sliding_window", "attention_chunk_size") if kind == "window" else None
        tensors, cache = attention(keys, family, f"{prefix}.self_attn", window)
    norm = keys.whole("hidden_size") * (2 if family.norm_bias else 1)
    tensors.append(vector(f"{prefix}.norms", family.norms * norm))
    if family.recurrent and family.norms == 1:  # a pure state-space model has no feed-forward part
        return tensors, cache, 2 * keys.whole("hidden_size")
    more, width = feed_forward(keys, family, index)
    return tensors + more, cache, width


def _dtype(raw: Mapping[str, object], keys: Keys) -> str:
    """The checkpoint's dtype; bfloat16 when it does not say."""
    said = keys.text("torch_dtype", "dtype") or Keys(raw, keys.where).text("torch_dtype", "dtype")
    said = said.removeprefix("torch.")
    if said and said not in WIDTHS:
        raise CapacityError(f"{keys.where}: torch_dtype is {said!r}; allowed: {', '.join(WIDTHS)}")
    return said or "bfloat16"
