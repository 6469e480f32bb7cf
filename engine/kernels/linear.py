"""The linear seam: a backend turns one weight matrix into a callable, once, at load time."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional

Linear = Callable[[torch.Tensor], torch.Tensor]  # [T, in] -> [T, out]

PACK_FOR_ROWS = 32  # only a hint to oneDNN; the packed weight takes any number of rows


class LinearBackend(Protocol):
    """How weights are kept and multiplied: plain, packed or quantised."""

    def prepare(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """`weight` is [out, in] in the dtype and on the device of the model; `bias` is [out]."""


class TorchLinear:
    """The reference: weights as they are, torch's own matrix product."""

    def prepare(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        return lambda x: functional.linear(x, weight, bias)


class PackedLinear:
    """oneDNN's own order of the weights, made once instead of on every call (CPU only).

    The values are the same; the product takes half the time at batch 1 and in float32.
    """

    def prepare(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        with torch.inference_mode(False), torch.no_grad():
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.clone(), PACK_FOR_ROWS)
        multiply = torch.ops.mkldnn._linear_pointwise.default
        return lambda x: multiply(x, packed, bias, "none", [], "")


def best_linear(device: torch.device, dtype: torch.dtype) -> LinearBackend:
    """PackedLinear where this machine can run it in `dtype`, else the reference."""
    if device.type != "cpu" or not torch._C._has_mkldnn:
        return TorchLinear()
    native = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    usable = dtype == torch.float32 or (dtype == torch.bfloat16 and native)
    return PackedLinear() if usable else TorchLinear()
