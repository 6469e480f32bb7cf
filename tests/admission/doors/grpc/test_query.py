"""Requests are read strictly: each wrong one is refused with a sentence that names the fault."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.admission.doors.grpc.rig import ask, element

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.query import parse, read_query
from surgetank.admission.outcome import Refused
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason


def read(request: pb.ModelInferRequest, decoupled: bool = True) -> object:
    return read_query(request, decoupled=decoupled)


@pytest.mark.parametrize("raw", [True, False])
def test_both_encodings_read_the_same(raw: bool) -> None:
    request = ask("héllo", raw=raw, sampling={"max_tokens": "5"}, stream=True, return_logprobs=True)
    query = read_query(request, decoupled=True)
    assert (query.text, query.stream, query.echo, query.raw) == ("héllo", True, False, raw)
    assert query.sampling.params.max_tokens == 5
    assert query.outputs == ("text_output", "logprobs")


@pytest.mark.parametrize(
    ("flags", "echo"),
    [
        ({}, True),
        ({"stream": False}, True),
        ({"stream": True}, False),
        ({"exclude_input_in_output": True}, False),
        ({"exclude_input_in_output": False}, True),
        ({"stream": True, "exclude_input_in_output": True}, False),
    ],
)
def test_prompt_is_repeated_only_in_plain_answers(flags: dict[str, Any], echo: bool) -> None:
    assert read_query(ask(**flags), decoupled=True).echo is echo


def test_request_parameters_stand_in_for_the_tensor() -> None:
    request = ask()
    request.parameters["temperature"].double_param = 0.5
    request.parameters["max_tokens"].int64_param = 7
    request.parameters["stop"].string_param = "\n"
    request.parameters["priority"].uint64_param = 3
    request.parameters["timeout"].int64_param = 2_500_000
    request.parameters["sequence_id"].int64_param = 9
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    query = read_query(request, decoupled=True)
    assert query.sampling.params.temperature == 0.5
    assert (query.sampling.params.max_tokens, query.sampling.stop) == (7, ("\n",))
    assert (query.priority, query.timeout, query.empty_final) == (Priority.BATCH, 2.5, True)


def test_the_tensor_wins_over_request_parameters() -> None:
    request = ask(sampling={"max_tokens": 3})
    request.parameters["max_tokens"].int64_param = 7
    request.parameters["lora_name"].string_param = "not read"
    assert read_query(request, decoupled=True).sampling.params.max_tokens == 3


@pytest.mark.parametrize(
    ("level", "priority"),
    [(0, None), (1, Priority.CRITICAL), (2, Priority.DEFAULT), (9, Priority.SHEDDABLE)],
)
def test_triton_priority_levels(level: int, priority: Priority | None) -> None:
    request = ask()
    request.parameters["priority"].uint64_param = level
    assert read_query(request, decoupled=True).priority == priority


def test_requested_outputs_prune_the_answer() -> None:
    request = ask(return_finish_reason=True, return_num_output_tokens=True)
    request.outputs.add(name="finish_reason")
    request.outputs.add(name="logprobs")  # its flag is not set
    assert read_query(request, decoupled=True).outputs == ("finish_reason",)


Change = Callable[[pb.ModelInferRequest], object]
WRONG: dict[str, tuple[Change, str]] = {
    "unknown input": (lambda r: setattr(r.inputs[0], "name", "prompt"), "unknown input 'prompt'"),
    "no text": (lambda r: setattr(r.inputs[0], "name", "sampling_parameters"), "'text_input' is"),
    "datatype": (lambda r: setattr(r.inputs[0], "datatype", "INT32"), "allowed: BYTES"),
    "shape": (lambda r: r.inputs[0].shape.append(1), "shape [1, 1]; allowed: [1]"),
    "negative shape": (lambda r: r.inputs[0].shape.__setitem__(0, -1), "shape [-1]"),
    "too few raw": (lambda r: r.inputs.add(name="stream"), "1 entries for 2 inputs"),
    "raw and typed": (
        lambda r: r.inputs[0].contents.bytes_contents.append(b"x"),
        "both raw and as contents",
    ),
    "shared memory": (
        lambda r: setattr(r.inputs[0].parameters["shared_memory_region"], "string_param", "x"),
        "shared memory",
    ),
    "short length": (lambda r: r.raw_input_contents.__setitem__(0, b"\1\0"), "2 bytes cannot"),
    "long length": (
        lambda r: r.raw_input_contents.__setitem__(0, b"\xff\xff\xff\xffab"),
        "length is 4294967295 but 2 bytes follow",
    ),
    "two elements": (
        lambda r: r.raw_input_contents.__setitem__(0, element(b"a") + element(b"b")),
        "length is 1 but 6 bytes follow",
    ),
    "not UTF-8": (
        lambda r: r.raw_input_contents.__setitem__(0, element(b"ab\xff")),
        "not UTF-8 at byte 2",
    ),
    "unknown output": (lambda r: r.outputs.add(name="text"), "unknown output 'text'"),
    "empty parameter": (lambda r: r.parameters["seed"], "parameter 'seed' has no value"),
    "unknown parameter": (
        lambda r: setattr(r.parameters["beam"], "int64_param", 1),
        "unknown sampling parameter 'beam'",
    ),
    "priority": (
        lambda r: setattr(r.parameters["priority"], "string_param", "high"),
        "priority is 'high'; allowed: a whole number",
    ),
    "timeout": (
        lambda r: setattr(r.parameters["timeout"], "int64_param", -1),
        "timeout is '-1'; allowed",
    ),
}


@pytest.mark.parametrize(("change", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_requests(change: Change, sentence: str) -> None:
    request = ask()
    change(request)
    with pytest.raises(Refused) as refused:
        read(request)
    assert sentence in refused.value.refusal.message
    assert refused.value.refusal.outcome is Outcome.INVALID


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (ask(raw=False, text_input=True), "'text_input' is given twice"),
        (ask(sampling={"n": 129}), "n is '129'; allowed: a whole number from 1 to 128"),
        (ask(stream=True, exclude_input_in_output=False), "exclude_input_in_output is false"),
    ],
    ids=["twice", "n", "echo"],
)
def test_wrong_combinations(request_: pb.ModelInferRequest, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        read(request_)


def test_wrong_typed_contents() -> None:
    request = ask(raw=False, stream=True)
    request.inputs[1].contents.int_contents.append(1)
    with pytest.raises(Refused, match="a BOOL tensor uses bool_contents, not int_contents"):
        read(request)
    request = ask(raw=False)
    request.inputs[0].contents.bytes_contents.append(b"more")
    with pytest.raises(Refused, match=r"has 2 elements for shape \[1\]"):
        read(request)


def test_raw_bool_is_one_byte_zero_or_one() -> None:
    for data in (b"", b"\2", b"\1\0"):
        request = ask(stream=True)
        request.raw_input_contents[1] = data
        with pytest.raises(Refused, match=f"got {len(data)} bytes"):
            read(request)


def test_streaming_needs_a_stream() -> None:
    with pytest.raises(Refused, match="use ModelStreamInfer"):
        read(ask(stream=True), decoupled=False)


def test_another_version_is_not_found() -> None:
    request = ask()
    request.model_version = "2"
    with pytest.raises(Refused) as refused:
        read(request)
    assert refused.value.refusal.outcome is Outcome.NOT_FOUND


def test_parse_limits_size_and_garbage() -> None:
    data = ask("x" * 100).SerializeToString()
    assert parse(data, len(data)).model_name == "tiny"
    with pytest.raises(Refused) as refused:
        parse(data, len(data) - 1)
    assert refused.value.refusal.reason is Reason.BODY_TOO_LARGE
    with pytest.raises(Refused, match="not a ModelInferRequest"):
        parse(b"\xff\xff", 100)
    with pytest.raises(Refused, match="id has 129 characters; allowed: 128"):
        parse(ask(request_id="i" * 129).SerializeToString(), 1000)
