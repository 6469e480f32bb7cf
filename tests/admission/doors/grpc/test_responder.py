"""Deltas become responses: merged, in both encodings, with the outputs that were asked for."""

import json
from typing import Any

import pytest
from tests.admission.doors.grpc.rig import ask, elements, texts
from tests.fakes import tiny_card

from surgetank.admission.api import Delta
from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.query import read_query
from surgetank.admission.doors.grpc.responder import Responder, error
from surgetank.engine.api import TokenLogprob
from surgetank.engine.text.codec import TextCodec
from surgetank.telemetry.vocabulary import FinishReason

CODEC = TextCodec(tiny_card())
EVERYTHING: dict[str, Any] = {
    "return_finish_reason": True,
    "return_cumulative_logprob": True,
    "return_logprobs": True,
    "return_num_input_tokens": True,
    "return_num_output_tokens": True,
}


def responder(request: pb.ModelInferRequest) -> Responder:
    return Responder(read_query(request, decoupled=True), CODEC.token, prompt_tokens=5)


def delta(text: str, *ids: int, index: int = 0, finish: FinishReason | None = None) -> Delta:
    logprobs = [TokenLogprob(-0.25, [(i, -0.25), (9, -2.0)]) for i in ids]
    return Delta(index, text, list(ids), logprobs, finish)


def part(answer: Responder) -> pb.ModelInferResponse:
    return pb.ModelStreamInferResponse.FromString(answer.part()).infer_response


@pytest.mark.parametrize("raw", [True, False])
def test_every_output_in_both_encodings(raw: bool) -> None:
    answer = responder(ask(raw=raw, request_id="7", sampling={"n": 2}, stream=True, **EVERYTHING))
    answer.add([delta("a", 1), delta("b", 2, index=1), delta("c", 3, finish=FinishReason.STOP)])
    response = part(answer)
    assert (response.id, response.model_name, response.model_version) == ("7", "tiny", "1")
    assert [list(o.shape) for o in response.outputs] == [[2], [2], [2], [2], [1], [2]]
    assert bool(response.raw_output_contents) is raw
    assert texts(response) == ["ac", "b"]
    assert texts(response, "finish_reason") == ["stop", "None"]
    assert elements(response, "cumulative_logprob") == [-0.5, -0.25]
    assert elements(response, "num_input_tokens") == [5]
    assert elements(response, "num_output_tokens") == [2, 1]
    first: list[dict[str, Any]] = json.loads(texts(response, "logprobs")[0])
    assert [list(entry) for entry in first] == [["1", "9"], ["3", "9"]]
    assert first[0]["1"] == {"logprob": -0.25, "rank": 1, "decoded_token": CODEC.token(1)}


def test_each_response_has_only_what_is_new() -> None:
    answer = responder(ask(sampling={"n": 2}, stream=True, **EVERYTHING))
    answer.add([delta("a", 1), delta("b", 2, index=1, finish=FinishReason.LENGTH)])
    part(answer)
    answer.add([delta("c", 3, finish=FinishReason.STOP)])
    second = part(answer)
    assert texts(second) == ["c", ""]
    assert texts(second, "finish_reason") == ["stop", "length"]
    assert elements(second, "num_output_tokens") == [1, 0]
    assert elements(second, "cumulative_logprob") == [-0.5, -0.25]
    assert texts(second, "logprobs")[1] == "null"


@pytest.mark.parametrize("empty_final", [True, False])
def test_the_end_is_marked_once(empty_final: bool) -> None:
    request = ask(stream=True)
    request.parameters["triton_enable_empty_final_response"].bool_param = empty_final
    answer = responder(request)
    answer.add([delta("a", 1)])
    marks = [part(answer).parameters["triton_final_response"].bool_param]
    answer.add([delta("b", 2, finish=FinishReason.STOP)])
    marks.append(part(answer).parameters["triton_final_response"].bool_param)
    assert marks == [False, not empty_final]


def test_empty_final_has_no_outputs() -> None:
    data = responder(ask(request_id="7")).empty_final()
    response = pb.ModelStreamInferResponse.FromString(data).infer_response
    assert (response.id, len(response.outputs)) == ("7", 0)
    assert response.parameters["triton_final_response"].bool_param


def test_plain_answer_repeats_the_prompt_for_each_choice() -> None:
    answer = responder(ask("Hi ", sampling={"n": 2}))
    answer.add([delta("a", 1, finish=FinishReason.STOP)])
    assert not answer.complete
    answer.add([delta("b", 2, index=1, finish=FinishReason.STOP)])
    assert answer.complete
    assert texts(pb.ModelInferResponse.FromString(answer.whole())) == ["Hi a", "Hi b"]


def test_an_error_names_its_request() -> None:
    response = pb.ModelStreamInferResponse.FromString(error("no", "7", "tiny"))
    assert (response.error_message, response.infer_response.id) == ("no", "7")
    assert response.infer_response.parameters["triton_final_response"].bool_param
