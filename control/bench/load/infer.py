"""KServe v2 calls by grpcio with its own retry policy."""

import json

import grpc

from surgetank.admission.client.service_config import service_config
from surgetank.admission.doors.grpc import inference_pb2 as pb

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def channel_of(address: str, attempts: int) -> grpc.aio.Channel:
    """A channel whose library tries so often, the first time included."""
    config = service_config(attempts=attempts)
    # Throttling would let a client give up early: these are to be as trying as they may be.
    del config["retryThrottling"]
    options = [("grpc.service_config", json.dumps(config))]
    return grpc.aio.insecure_channel(address, options=options)


def infer_request(prompt: str, tokens: int, model: str = "default") -> pb.ModelInferRequest:
    """A greedy request for exactly so many tokens, without its prompt in the answer."""
    request = pb.ModelInferRequest(model_name=model)
    text = request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    text.contents.bytes_contents.append(prompt.encode())
    flag(request, "exclude_input_in_output")
    request.parameters["max_tokens"].int64_param = tokens
    request.parameters["temperature"].string_param = "0"
    request.parameters["ignore_eos"].bool_param = True
    return request


def flag(request: pb.ModelInferRequest, name: str) -> None:
    """Set one of the door's BOOL inputs."""
    tensor = request.inputs.add(name=name, datatype="BOOL", shape=[1])
    tensor.contents.bool_contents.append(True)
