"""A ModelInferRequest, read and checked: what is asked, and how the answer should look."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.message import check_id, parsed
from surgetank.admission.doors.grpc.sampling import Sampling, parse_json, read_sampling
from surgetank.admission.doors.grpc.tensors import OUTPUTS, bad, read_inputs, shown
from surgetank.admission.outcome import Refusal, Refused
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason

VERSION = "1"  # a model has one version here

# Request parameters with a meaning of their own; the others are sampling parameters.
_RESERVED = ("priority", "timeout", "sequence_id", "sequence_start", "sequence_end")
_RESERVED_PREFIX = "triton_"
_EMPTY_FINAL = "triton_enable_empty_final_response"

# Triton's priority levels, 1 the highest and 0 the default, in our classes.
_PRIORITY = {
    1: Priority.CRITICAL,
    2: Priority.DEFAULT,
    3: Priority.BATCH,
}


@dataclass(frozen=True, slots=True)
class Query:
    """One request, checked."""

    id: str  # the client's own; every response repeats it
    model: str
    text: str
    stream: bool
    echo: bool  # the prompt goes before the output
    sampling: Sampling
    outputs: tuple[str, ...]  # in the order of the response
    raw: bool  # encode outputs as the inputs were
    empty_final: bool  # an empty response shall mark the end
    priority: Priority | None  # None: the request names none
    timeout: float | None  # seconds


def parse(data: bytes, max_bytes: int) -> pb.ModelInferRequest:
    """The message on the wire. Raises Refused when it is too large or no such message."""
    request = parsed(pb.ModelInferRequest, data, max_bytes)
    check_id("id", request.id)
    return request


def check_version(version: str) -> None:
    """A model has version "1"; empty asks for the latest. Raises Refused for any other."""
    if version not in ("", VERSION):
        message = f"model version {shown(version)} is not served; allowed: '' or '{VERSION}'"
        raise Refused(Refusal(Outcome.NOT_FOUND, Reason.UNKNOWN_MODEL, message))


def read_query(request: pb.ModelInferRequest, *, decoupled: bool) -> Query:
    """Check a request whole. `decoupled`: it came on a stream, so may have many responses.

    Raises Refused with a sentence that names what is wrong and what is allowed.
    """
    check_version(request.model_version)
    texts, flags = read_inputs(request)
    stream = flags.get("stream", False)
    if stream and not decoupled:
        raise bad("stream is true, but ModelInfer has one response; use ModelStreamInfer", "stream")
    echo = not flags.get("exclude_input_in_output", stream)
    if echo and stream:
        raise bad(
            "exclude_input_in_output is false, which a streamed output does not allow",
            "exclude_input_in_output",
        )
    outputs = _outputs(request, flags)
    parameters = {name: _parameter(name, value) for name, value in request.parameters.items()}
    sampling = read_sampling(
        _sampling_source(texts, parameters),
        logprobs="cumulative_logprob" in outputs,
    )
    return Query(
        id=request.id,
        model=request.model_name,
        text=_text(texts["text_input"]),
        stream=stream,
        echo=echo,
        sampling=sampling,
        outputs=outputs,
        raw=bool(request.raw_input_contents),
        empty_final=parameters.get(_EMPTY_FINAL) is True,
        priority=_priority(parameters.get("priority", 0)),
        timeout=_timeout(parameters.get("timeout", 0)),
    )


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise bad(f"text_input is not UTF-8 at byte {error.start}", "text_input") from None


def _outputs(request: pb.ModelInferRequest, flags: Mapping[str, bool]) -> tuple[str, ...]:
    """text_output and what the return_ flags ask for, less what was not requested by name."""
    requested = {output.name for output in request.outputs}
    for name in requested - OUTPUTS.keys():
        raise bad(f"unknown output {shown(name)}; allowed: {', '.join(OUTPUTS)}")
    return tuple(
        name
        for name in OUTPUTS
        if (name == "text_output" or flags.get(f"return_{name}", False))
        and (not requested or name in requested)
    )


def _sampling_source(
    texts: Mapping[str, bytes], parameters: Mapping[str, Any]
) -> Mapping[str, Any]:
    if "sampling_parameters" in texts:
        return parse_json(texts["sampling_parameters"])
    return {
        name: value
        for name, value in parameters.items()
        if name not in _RESERVED and not name.startswith(_RESERVED_PREFIX)
    }


def _parameter(name: str, parameter: pb.InferParameter) -> Any:
    choice = parameter.WhichOneof("parameter_choice")
    if choice is None:
        raise bad(f"parameter {shown(name)} has no value")
    return getattr(parameter, choice)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise bad(f"{name} is {shown(str(value))}; allowed: a whole number, 0 or more", name)
    return value


def _priority(value: Any) -> Priority | None:
    level = _whole("priority", value)
    return _PRIORITY.get(level, Priority.SHEDDABLE) if level else None


def _timeout(value: Any) -> float | None:
    """Microseconds in the request, 0 for none."""
    microseconds = _whole("timeout", value)
    return microseconds / 1e6 if microseconds else None
