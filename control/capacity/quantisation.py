"""Bytes of a quantised tensor: codes, scales and zero points, and which tensors stay in 16 bits.

A linear weight of r x c elements at b bits with one scale per g inputs and k outputs takes
    r*c*b/8  +  ceil(c/g) * ceil(r/k) * (scale bytes + zero bits/8)  +  c * index bytes.
Formats: AWQ (arXiv:2306.00978) and GPTQ (arXiv:2210.17323) scale groups along the inputs; FP8
checkpoints use one scale per tensor, per output row or per 128 x 128 block; OCP MXFP4 one byte
per 32 codes; NVFP4 one byte per 16; bitsandbytes one float per 64 codes.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surgetank.control.capacity.units import CapacityError, unknown


@dataclass(frozen=True, slots=True)
class Quantisation:
    """One scheme for all linear weights that no pattern of `skip` names."""

    method: str
    bits: int
    group: int | None = None  # inputs per scale; None = all
    block_rows: int | None = 1  # outputs per scale; None = all
    scale_bytes: int = 2
    zero_bits: int = 0  # of the zero point beside each scale
    index_bytes: int = 0  # per input: GPTQ's group index
    skip: tuple[str, ...] = ("lm_head",)

    def covers(self, name: str) -> bool:
        """Whether a linear weight of this name is quantised."""
        return not any(_matches(pattern, name) for pattern in self.skip)

    def stored(self, rows: int, columns: int) -> int:
        """Bytes of one linear weight."""
        scales = math.ceil(columns / (self.group or columns)) * math.ceil(
            rows / (self.block_rows or rows)
        )
        codes = rows * columns * self.bits / 8
        beside = scales * (self.scale_bytes + self.zero_bits / 8) + columns * self.index_bytes
        return math.ceil(codes + beside)


def _matches(pattern: str, name: str) -> bool:
    """A pattern names a module: a regular expression after "re:", else dotted parts with `*`."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name) is not None
    parts = re.escape(pattern.strip(".*")).replace(r"\*", "[^.]*")
    return re.search(rf"(^|\.){parts}(\.|$)", name) is not None


PRESETS = {
    "fp8": Quantisation("fp8", bits=8, scale_bytes=2),
    "int8": Quantisation("int8", bits=8, scale_bytes=2),
    "int4": Quantisation("int4", bits=4, group=128, zero_bits=4),
}


def read_quantisation(raw: object) -> Quantisation | None:
    """The scheme of a checkpoint's `quantization_config`; None when there is none.

    CapacityError for a method that is not known, or one whose numbers are missing.
    """
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise CapacityError("quantization_config is not an object")
    method = str(raw.get("quant_method", "")).lower()
    reader = _READERS.get(method)
    if reader is None:
        raise unknown("quantization_config.quant_method", method, _READERS)
    try:
        return reader(raw)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CapacityError(
            f"quantization_config of method {method} is not readable: {error!r}"
        ) from error


def _group(value: object) -> int | None:
    """A group size as checkpoints write it: -1, 0 and null mean one scale per output row."""
    size = int(str(value)) if value is not None else -1
    return size if size > 0 else None


def _skipped(raw: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """Module patterns left in 16 bits. The output head is, unless the checkpoint says otherwise."""
    head = () if raw.get("lm_head") is True else ("lm_head",)
    named: Sequence[object] = next((raw[key] for key in keys if raw.get(key)), ())
    return head + tuple(str(pattern) for pattern in named)


def _awq(raw: Mapping[str, Any]) -> Quantisation:
    bits = int(raw.get("bits") or raw["w_bit"])
    group = _group(raw.get("group_size", raw.get("q_group_size", 128)))
    zero = bits if raw.get("zero_point", True) else 0
    return Quantisation(
        "awq", bits, group, zero_bits=zero, skip=_skipped(raw, "modules_to_not_convert")
    )


def _gptq(raw: Mapping[str, Any]) -> Quantisation:
    bits = int(raw["bits"])
    skip = _skipped(raw, "modules_to_not_convert", "modules_in_block_to_not_quantize")
    return Quantisation(
        "gptq", bits, _group(raw.get("group_size")), zero_bits=bits, index_bytes=4, skip=skip
    )


def _fp8(raw: Mapping[str, Any]) -> Quantisation:
    skip = _skipped(raw, "modules_to_not_convert", "ignored_layers")
    block = raw.get("weight_block_size")
    if block:
        rows, columns = (int(side) for side in block)
        return Quantisation("fp8", 8, columns, rows, scale_bytes=4, skip=skip)
    return Quantisation("fp8", 8, block_rows=None, scale_bytes=4, skip=skip)


def _fbgemm(raw: Mapping[str, Any]) -> Quantisation:
    return Quantisation("fp8", 8, scale_bytes=4, skip=_skipped(raw, "modules_to_not_convert"))


def _mxfp4(raw: Mapping[str, Any]) -> Quantisation:
    skip = _skipped(raw, "modules_to_not_convert")
    return Quantisation("mxfp4", 4, 32, scale_bytes=1, skip=skip)


def _bitsandbytes(raw: Mapping[str, Any]) -> Quantisation:
    skip = _skipped(raw, "llm_int8_skip_modules")
    if raw.get("load_in_8bit"):
        return Quantisation("bitsandbytes", 8, scale_bytes=4, skip=skip)
    scale = 1 if raw.get("bnb_4bit_use_double_quant") else 4
    return Quantisation("bitsandbytes", 4, 64, scale_bytes=scale, skip=skip)


def _compressed_tensors(raw: Mapping[str, Any]) -> Quantisation:
    weights = next(iter(raw["config_groups"].values()))["weights"]
    bits = int(weights["num_bits"])
    strategy = str(weights.get("strategy", "tensor"))
    skip = _skipped(raw, "ignore")
    if strategy == "block":
        rows, columns = (int(side) for side in weights["block_structure"])
        return Quantisation("compressed-tensors", bits, columns, rows, skip=skip)
    if strategy in ("group", "tensor_group"):
        scale = 1 if strategy == "tensor_group" else 2
        zero = 0 if weights.get("symmetric", True) else bits
        group = _group(weights["group_size"])
        return Quantisation(
            "compressed-tensors", bits, group, scale_bytes=scale, zero_bits=zero, skip=skip
        )
    rows_per_scale = 1 if strategy == "channel" else None
    return Quantisation("compressed-tensors", bits, block_rows=rows_per_scale, skip=skip)


def _modelopt(raw: Mapping[str, Any]) -> Quantisation:
    skip = _skipped(raw, "ignore", "exclude_modules")
    if "FP4" in str(raw["quant_algo"]).upper():
        return Quantisation("nvfp4", 4, 16, scale_bytes=1, skip=skip)
    return Quantisation("fp8", 8, block_rows=None, scale_bytes=4, skip=skip)


_READERS = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
}
