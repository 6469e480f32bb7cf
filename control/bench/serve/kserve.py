"""The gRPC clients of a run: grpcio's own retries around one answer, or a stream without any."""

import asyncio
from typing import Any

import grpc

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.control.bench.load.attempts import REASON
from surgetank.control.bench.load.infer import INFER, STREAM, channel_of, flag, infer_request
from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.rows import Answer

_ATTEMPTS = 3
_COUNTS = ("return_num_input_tokens", "return_num_output_tokens")


class KServe:
    """One channel. Its library repeats unseen: what is told of attempts is nothing."""

    def __init__(self, address: str, model: str, api_key: str, timeout: float) -> None:
        self._model = model
        self._timeout = timeout
        self._metadata = (("authorization", f"Bearer {api_key}"),)
        self._channel = channel_of(address, _ATTEMPTS)
        self._infer = self._channel.unary_unary(
            INFER,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        self._stream = self._channel.stream_stream(
            STREAM,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(grace=None)

    def request(self, call: Call, prompt: str) -> pb.ModelInferRequest:
        """One request that asks for its counts too."""
        found = infer_request(prompt, call.output, self._model)
        for name in _COUNTS:
            flag(found, name)
        return found


class Unary(KServe):
    """ModelInfer: the answer comes as a whole."""

    async def ask(self, call: Call, prompt: str) -> Answer:
        """One call to its end."""
        answer = Answer(whole=True)
        try:
            response = await self._infer(
                self.request(call, prompt), timeout=self._timeout, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            _failed(answer, error)
        else:
            answer.times.append(asyncio.get_running_loop().time())
            _count(answer, response)
        return answer


class Streamed(KServe):
    """ModelStreamInfer, one stream a call: each piece is noted, and nothing repeats it."""

    async def ask(self, call: Call, prompt: str) -> Answer:
        """One call to its end."""
        answer, now = Answer(), asyncio.get_running_loop().time
        request = self.request(call, prompt)
        del request.inputs[1]  # exclude_input_in_output: a stream never repeats its prompt
        flag(request, "stream")
        try:
            stream = self._stream(iter((request,)), timeout=self._timeout, metadata=self._metadata)
            async for response in stream:
                if response.error_message:
                    answer.error, answer.refusal = "error in the stream", "error in the stream"
                elif _texts(response.infer_response):
                    answer.times.append(now())
                    _count(answer, response.infer_response)
        except grpc.aio.AioRpcError as error:
            _failed(answer, error)
        return answer


def _failed(answer: Answer, error: grpc.aio.AioRpcError) -> None:
    answer.error = error.code().name
    trailers: Any = error.trailing_metadata() or ()  # pairs, which their stubs do not know
    answer.refusal = dict(trailers).get(REASON, "")


def _texts(response: pb.ModelInferResponse) -> bool:
    texts = _output(response, "text_output")
    return texts is not None and any(texts.bytes_contents)


def _count(answer: Answer, response: pb.ModelInferResponse) -> None:
    """Of one response: the prompt's tokens, and those that it brought."""
    prompt = _output(response, "num_input_tokens")
    if prompt is not None:
        answer.prompt_tokens = sum(prompt.uint_contents)
    output = _output(response, "num_output_tokens")
    if output is not None:
        answer.output_tokens = (answer.output_tokens or 0) + sum(output.uint_contents)


def _output(response: pb.ModelInferResponse, name: str) -> Any:
    return next((each.contents for each in response.outputs if each.name == name), None)
