"""Bytes of the weights: quantised linear layers, and the 16-bit rest, in all and on one rank.

bytes = sum over tensors of elements x width, or of the quantised size (quantisation.py). Under
tensor parallelism of degree t a tensor that splits n ways costs bytes / min(t, n) on each rank:
key and value projections split over KV heads, norms and routers not at all (Megatron-LM,
arXiv:1909.08053).
"""

import math
from dataclasses import dataclass

from surgetank.control.capacity.architecture import Architecture, Tensor
from surgetank.control.capacity.quantisation import PRESETS, Quantisation
from surgetank.control.capacity.units import WIDTHS, unknown

DTYPES = ("auto", "bfloat16", "float16", "float32", *PRESETS)


@dataclass(frozen=True, slots=True)
class Weights:
    """What the weights take; all sizes in bytes."""

    plain_elements: int
    plain: int  # at `width` bytes each
    coded_elements: int
    coded: int  # quantised, with scales and zero points
    width: int
    rank: int  # on one rank
    scheme: Quantisation | None
    measured: int | None  # in the files; replaces the formula's total

    @property
    def total(self) -> int:
        return self.measured if self.measured is not None else self.plain + self.coded


def weigh(architecture: Architecture, dtype: str, tp: int) -> Weights:
    """The weights at a dtype; "auto" is the checkpoint's own. CapacityError for unknown dtypes."""
    width, scheme = _storage(architecture, dtype)
    plain_elements = plain = coded_elements = coded = rank = 0
    for tensor in architecture.tensors:
        covered = scheme is not None and tensor.linear and scheme.covers(tensor.name)
        if scheme is not None and covered:
            size = scheme.stored(tensor.rows, tensor.columns) * tensor.count
            coded_elements += tensor.elements
            coded += size
        else:
            size = tensor.elements * width
            plain_elements += tensor.elements
            plain += size
        rank += _share(tensor, size, tp)
    measured = architecture.stored_bytes if dtype == "auto" else None
    if measured is not None:
        rank = math.ceil(measured * rank / (plain + coded))
    return Weights(plain_elements, plain, coded_elements, coded, width, rank, scheme, measured)


def _storage(architecture: Architecture, dtype: str) -> tuple[int, Quantisation | None]:
    """Bytes of an element that is not quantised, and the scheme of those that are."""
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if dtype in PRESETS:
        return 2, PRESETS[dtype]
    if dtype != "auto":
        return WIDTHS[dtype], None
    if architecture.dtype in PRESETS:
        return 2, PRESETS[architecture.dtype]
    return WIDTHS[architecture.dtype], architecture.quantisation


def _share(tensor: Tensor, size: int, tp: int) -> int:
    return math.ceil(size / min(tp, tensor.ways))
