"""The door's tensors: their names and types, and their two encodings, raw bytes and typed lists."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.outcome import Refused, invalid
from surgetank.telemetry.vocabulary import Reason

T = TypeVar("T", bytes, bool)


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor as the protocol describes it. `length` -1: as many elements as choices."""

    datatype: str
    length: int
    optional: bool = True


# Those of Triton's vLLM backend, so that its clients work unchanged.
INPUTS = {
    "text_input": Spec("BYTES", 1, optional=False),
    "stream": Spec("BOOL", 1),
    "sampling_parameters": Spec("BYTES", 1),
    "exclude_input_in_output": Spec("BOOL", 1),
    "return_finish_reason": Spec("BOOL", 1),
    "return_cumulative_logprob": Spec("BOOL", 1),
    "return_logprobs": Spec("BOOL", 1),
    "return_num_input_tokens": Spec("BOOL", 1),
    "return_num_output_tokens": Spec("BOOL", 1),
}
OUTPUTS = {
    "text_output": Spec("BYTES", -1),
    "finish_reason": Spec("BYTES", -1),
    "cumulative_logprob": Spec("FP32", -1),
    "logprobs": Spec("BYTES", -1),
    "num_input_tokens": Spec("UINT32", 1),
    "num_output_tokens": Spec("UINT32", -1),
}

_CONTENTS = {
    "BYTES": "bytes_contents",
    "BOOL": "bool_contents",
    "FP32": "fp32_contents",
    "UINT32": "uint_contents",
}


def bad(message: str, param: str | None = None) -> Refused:
    """A tensor or parameter that breaks the protocol."""
    return invalid(Reason.BAD_REQUEST, message, param)


def shown(name: str) -> str:
    """A client's word as it may stand in an error message: quoted, one line, short."""
    return repr(name if len(name) <= 64 else name[:61] + "...")


class Inputs(NamedTuple):
    """The input tensors of one request by name, each of one element."""

    texts: dict[str, bytes]
    flags: dict[str, bool]


def read_inputs(request: pb.ModelInferRequest) -> Inputs:
    """The request's input tensors. Raises Refused for any that is wrong or missing."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise bad(
            f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs; "
            "it must have one for each"
        )
    inputs = Inputs({}, {})
    for position, tensor in enumerate(request.inputs):
        name = tensor.name
        _check_header(tensor, seen=name in inputs.texts or name in inputs.flags, raw=bool(raw))
        if tensor.datatype == "BYTES":
            text = _raw_text(name, raw[position]) if raw else _typed(tensor, bytes)
            inputs.texts[name] = text
        else:
            flag = _raw_flag(name, raw[position]) if raw else _typed(tensor, bool)
            inputs.flags[name] = flag
    for name, spec in INPUTS.items():
        if not spec.optional and name not in inputs.texts:
            raise bad(f"input {name!r} is missing", name)
    return inputs


def _check_header(tensor: pb.ModelInferRequest.InferInputTensor, seen: bool, raw: bool) -> None:
    name, spec = tensor.name, INPUTS.get(tensor.name)
    if spec is None:
        raise bad(f"unknown input {shown(name)}; allowed: {', '.join(INPUTS)}")
    if seen:
        raise bad(f"input {name!r} is given twice", name)
    if tensor.datatype != spec.datatype:
        raise bad(
            f"input {name!r} has datatype {shown(tensor.datatype)}; allowed: {spec.datatype}", name
        )
    if list(tensor.shape) != [spec.length]:
        raise bad(
            f"input {name!r} has shape {list(tensor.shape)[:8]}; allowed: [{spec.length}]", name
        )
    if "shared_memory_region" in tensor.parameters:
        raise bad(f"input {name!r} is in shared memory, which this server does not read", name)
    if raw and tensor.HasField("contents"):
        raise bad(f"input {name!r} is given both raw and as contents", name)


def _raw_flag(name: str, data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise bad(f"input {name!r}: a BOOL is one byte, 0 or 1; got {len(data)} bytes", name)
    return data == b"\1"


def _raw_text(name: str, data: bytes) -> bytes:
    if len(data) < 4:
        raise bad(f"input {name!r}: {len(data)} bytes cannot hold a BYTES element's length", name)
    (length,) = struct.unpack_from("<I", data)
    if length != len(data) - 4:
        raise bad(
            f"input {name!r}: the element's length is {length} but {len(data) - 4} bytes follow it",
            name,
        )
    return data[4:]


def _typed(tensor: pb.ModelInferRequest.InferInputTensor, kind: type[T]) -> T:
    field = _CONTENTS[tensor.datatype]
    for other, _ in tensor.contents.ListFields():
        if other.name != field:
            raise bad(
                f"input {tensor.name!r}: a {tensor.datatype} tensor uses {field}, not {other.name}",
                tensor.name,
            )
    elements = getattr(tensor.contents, field)
    if len(elements) != 1:
        raise bad(f"input {tensor.name!r} has {len(elements)} elements for shape [1]", tensor.name)
    return kind(elements[0])


Elements = Sequence[bytes] | Sequence[int] | Sequence[float]


def pack(datatype: str, elements: Elements) -> bytes:
    """Elements in the raw encoding: little endian; each BYTES element after its 4-byte length."""
    if datatype == "BYTES":
        return b"".join(
            struct.pack("<I", len(text)) + text for text in elements if isinstance(text, bytes)
        )
    return struct.pack(f"<{len(elements)}{'f' if datatype == 'FP32' else 'I'}", *elements)


def fill(contents: pb.InferTensorContents, datatype: str, elements: Elements) -> None:
    """Elements in the typed encoding."""
    getattr(contents, _CONTENTS[datatype]).extend(elements)
