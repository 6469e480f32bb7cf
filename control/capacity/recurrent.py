"""Recurrent layers: their tensors, and the state they keep per sequence instead of keys and values.

Mamba (arXiv:2312.00752): a channel keeps the last k-1 inputs of its convolution and n state values.
Mamba-2 (arXiv:2405.21060): heads of p channels share n state values; the convolution also covers
the input and output maps B and C. Gated delta rule (arXiv:2412.06464): each value head keeps a
matrix of key features x value features.
"""

import math

from surgetank.control.capacity.architecture import State, Tensor
from surgetank.control.capacity.keys import Keys
from surgetank.control.capacity.layers import vector

Layer = tuple[list[Tensor], State]


def recurrent(keys: Keys, kind: str, prefix: str) -> Layer:
    """One recurrent layer of kind mamba, mamba2 or delta."""
    return _KINDS[kind](keys, prefix)


def _mamba(keys: Keys, prefix: str) -> Layer:
    hidden = keys.whole("hidden_size")
    hybrid = keys.has("mamba_d_state")  # Jamba names the keys its own way and adds three norms
    state = keys.whole("mamba_d_state", "state_size")
    kernel = keys.whole("mamba_d_conv", "conv_kernel", default=4)
    if hybrid:
        inner = keys.whole("mamba_expand", default=2) * hidden
        said = keys.values.get("mamba_dt_rank", "auto")
    else:
        inner = keys.whole("intermediate_size", default=2 * hidden)
        said = keys.values.get("time_step_rank", "auto")
    rank = said if isinstance(said, int) else math.ceil(hidden / 16)
    tensors = [
        Tensor(f"{prefix}.in_proj", 2 * inner, hidden),
        Tensor(f"{prefix}.conv1d", inner, kernel, linear=False),
        vector(f"{prefix}.conv1d.bias", inner, inner),
        Tensor(f"{prefix}.x_proj", rank + 2 * state, inner),
        Tensor(f"{prefix}.dt_proj", inner, rank),
        vector(f"{prefix}.dt_proj.bias", inner, inner),
        Tensor(f"{prefix}.A_log", inner, state, linear=False),
        vector(f"{prefix}.D", inner, inner),
        Tensor(f"{prefix}.out_proj", hidden, inner),
    ]
    if hybrid:
        tensors.append(vector(f"{prefix}.dt_b_c_layernorm", rank + 2 * state))
    return tensors, State(conv=inner * (kernel - 1), recurrent=inner * state)


def _mamba2(keys: Keys, prefix: str) -> Layer:
    hidden = keys.whole("hidden_size")
    heads = keys.whole("mamba_n_heads", "num_heads")
    inner = keys.whole("mamba_expand", "expand", default=2) * hidden
    state = keys.whole("mamba_d_state", "state_size")
    kernel = keys.whole("mamba_d_conv", "conv_kernel", default=4)
    mixed = inner + 2 * keys.whole("mamba_n_groups", "n_groups", default=1) * state
    tensors = [
        Tensor(f"{prefix}.in_proj", inner + mixed + heads, hidden),
        Tensor(f"{prefix}.conv1d", mixed, kernel, linear=False),
        vector(f"{prefix}.conv1d.bias", mixed, heads),
        vector(f"{prefix}.A_log_D_dt_bias", 3 * heads, heads),
        vector(f"{prefix}.norm", inner, heads),
        Tensor(f"{prefix}.out_proj", hidden, inner),
    ]
    return tensors, State(conv=mixed * (kernel - 1), recurrent=inner * state)


def _delta(keys: Keys, prefix: str) -> Layer:
    hidden = keys.whole("hidden_size")
    key_dim, value_dim = keys.whole("linear_key_head_dim"), keys.whole("linear_value_head_dim")
    key_heads = keys.whole("linear_num_key_heads")
    value_heads = keys.whole("linear_num_value_heads")
    kernel = keys.whole("linear_conv_kernel_dim", default=4)
    keyed, valued = key_heads * key_dim, value_heads * value_dim
    mixed = 2 * keyed + valued
    tensors = [
        Tensor(f"{prefix}.in_proj_qkvz", mixed + valued, hidden),
        Tensor(f"{prefix}.in_proj_ba", 2 * value_heads, hidden),
        Tensor(f"{prefix}.conv1d", mixed, kernel, linear=False),
        vector(f"{prefix}.A_log_dt_bias", 2 * value_heads, value_heads),
        vector(f"{prefix}.norm", value_dim),
        Tensor(f"{prefix}.out_proj", hidden, valued),
    ]
    return tensors, State(conv=mixed * (kernel - 1), recurrent=value_heads * key_dim * value_dim)


_KINDS = {"mamba": _mamba, "mamba2": _mamba2, "delta": _delta}
