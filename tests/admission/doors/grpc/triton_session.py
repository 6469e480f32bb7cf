"""A user of tritonclient, both flavours, in a process of its own; prints what it saw as JSON.

Its stubs and ours define the same protobuf package, so they cannot share a process.
"""

import asyncio
import json
import queue
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException


def inputs(text: str, stream: bool = False, **sampling: str) -> list[Any]:
    """Tensors as the sample client of Triton's vLLM backend builds them."""
    tensors = [triton.InferInput("text_input", [1], "BYTES")]
    tensors[0].set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
    tensors.append(triton.InferInput("stream", [1], "BOOL"))
    tensors[1].set_data_from_numpy(np.array([stream], dtype=bool))
    tensors.append(triton.InferInput("sampling_parameters", [1], "BYTES"))
    tensors[2].set_data_from_numpy(np.array([json.dumps(sampling).encode()], dtype=np.object_))
    for name in ("return_finish_reason", "return_cumulative_logprob", "return_num_output_tokens"):
        tensors.append(triton.InferInput(name, [1], "BOOL"))
        tensors[-1].set_data_from_numpy(np.array([True], dtype=bool))
    return tensors


def texts(result: Any) -> list[str]:
    """The text output's elements."""
    array = result.as_numpy("text_output")
    return [] if array is None else [element.decode() for element in array]


def blocking(url: str) -> dict[str, Any]:
    """tritonclient.grpc."""
    seen: dict[str, Any] = {}
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with triton.InferenceServerClient(url) as client:
        seen["ready"] = [client.is_server_live(), client.is_server_ready()]
        seen["model_ready"] = [client.is_model_ready("tiny"), client.is_model_ready("gpt")]
        seen["inputs"] = [t.name for t in client.get_model_metadata("tiny").inputs]
        seen["decoupled"] = client.get_model_config(
            "tiny"
        ).config.model_transaction_policy.decoupled
        result = client.infer("tiny", inputs("hello ", max_tokens="8"), request_id="7")
        seen["infer"] = [result.get_response().id, *texts(result)]
        seen["finish"] = result.as_numpy("finish_reason").tolist()[0].decode()
        seen["logprob"] = result.as_numpy("cumulative_logprob").tolist()
        seen["tokens"] = result.as_numpy("num_output_tokens").tolist()
        statistics = client.get_inference_statistics("tiny").model_stats[0]
        seen["success"] = statistics.inference_stats.success.count
        seen["index"] = [m.state for m in client.get_model_repository_index().models]
        for model, asked in (("gpt", inputs("x")), ("tiny", inputs("x")[1:])):
            try:
                client.infer(model, asked)
            except InferenceServerException as refused:
                seen.setdefault("errors", []).append([refused.status(), refused.message()])
        client.start_stream(lambda result, error: results.put((result, error)))
        for request_id, model in (("a", "tiny"), ("b", "gpt")):
            client.async_stream_infer(
                model,
                inputs("hello", stream=True, max_tokens="8"),
                request_id=request_id,
                enable_empty_final_response=True,
            )
        client.stop_stream()
    parts, finals = [], 0
    while not results.empty():
        result, error = results.get()
        if error is not None:
            seen["stream_error"] = error.message()
            continue
        parts.extend(texts(result))
        finals += result.get_response().parameters["triton_final_response"].bool_param
    seen["stream"], seen["finals"] = "".join(parts), finals
    return seen


async def streaming(url: str) -> dict[str, Any]:
    """tritonclient.grpc.aio."""
    seen: dict[str, Any] = {}

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            yield {
                "model_name": "tiny",
                "inputs": inputs("hello", stream=True, max_tokens="8"),
                "request_id": str(number),
            }

    async with triton_aio.InferenceServerClient(url) as client:
        found: dict[str, str] = {}
        async for result, error in client.stream_infer(requests()):
            if error is not None:
                raise error
            request_id = result.get_response().id
            found[request_id] = found.get(request_id, "") + "".join(texts(result))
        seen["stream"] = found
        result = await client.infer("default", inputs("hello ", max_tokens="2"))
        seen["infer"] = texts(result)
        cancelled = client.stream_infer(requests())
        await anext(cancelled)
        seen["cancel"] = cancelled.cancel()
    return seen


if __name__ == "__main__":
    address = sys.argv[1]
    seen = {"blocking": blocking(address), "streaming": asyncio.run(streaming(address))}
    sys.stdout.write(json.dumps(seen))
