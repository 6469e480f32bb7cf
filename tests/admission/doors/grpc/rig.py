"""A gRPC door on a free port before a FakeDesk, and a plain grpc.aio client for it."""

import asyncio
import itertools
import json
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from tests.fakes import FakeDesk

from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.server import GrpcDoor
from surgetank.telemetry.clock import Clock, ManualClock

SERVICE = "/inference.GRPCInferenceService/"
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # grpc-stubs forgot it
PATIENCE = 20.0  # seconds; only a failing test waits so long


@dataclass
class Rig:
    """Door, desk and a channel to it."""

    desk: FakeDesk
    door: GrpcDoor
    port: int
    channel: Any  # grpc-stubs demand serializers that grpc does not

    async def call(self, method: str, request: Any, **options: Any) -> Any:
        """A unary call of the inference service."""
        response = getattr(pb, f"{method}Response")
        return await self.channel.unary_unary(
            SERVICE + method, lambda message: message.SerializeToString(), response.FromString
        )(request, **options)

    async def infer(self, request: pb.ModelInferRequest, **options: Any) -> pb.ModelInferResponse:
        """ModelInfer."""
        response: pb.ModelInferResponse = await self.call("ModelInfer", request, **options)
        return response

    def stream(self, **options: Any) -> Any:
        """An open ModelStreamInfer call: write(), read(), done_writing(), cancel()."""
        return self.channel.stream_stream(
            SERVICE + "ModelStreamInfer",
            lambda message: message.SerializeToString(),
            pb.ModelStreamInferResponse.FromString,
        )(**options)


@asynccontextmanager
async def serve(
    desk: FakeDesk | None = None, clock: Clock | None = None, **config: Any
) -> AsyncIterator[Rig]:
    """A rig for one test; stopped at once at its end."""
    desk = desk or FakeDesk(script=[65, 66, 67])
    door = GrpcDoor(GrpcConfig(port=0, **config), desk, clock or ManualClock())
    port = await door.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            yield Rig(desk, door, port, channel)
        finally:
            await door.stop(0)


def element(data: bytes) -> bytes:
    """One BYTES element in the raw encoding."""
    return struct.pack("<I", len(data)) + data


def ask(
    text: str = "hello",
    *,
    model: str = "tiny",
    request_id: str = "",
    sampling: Mapping[str, Any] | None = None,
    raw: bool = True,
    **flags: bool,
) -> pb.ModelInferRequest:
    """A request as a Triton client would send it; flags are BOOL inputs."""
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    texts = {"text_input": text.encode()}
    if sampling is not None:
        texts["sampling_parameters"] = json.dumps(sampling).encode()
    for name, data in texts.items():
        tensor = request.inputs.add(name=name, datatype="BYTES", shape=[1])
        if raw:
            request.raw_input_contents.append(element(data))
        else:
            tensor.contents.bytes_contents.append(data)
    for name, value in flags.items():
        tensor = request.inputs.add(name=name, datatype="BOOL", shape=[1])
        if raw:
            request.raw_input_contents.append(bytes([value]))
        else:
            tensor.contents.bool_contents.append(value)
    return request


def texts(response: pb.ModelInferResponse, name: str = "text_output") -> list[str]:
    """A BYTES output's elements."""
    return [data.decode() for data in elements(response, name)]


def elements(response: pb.ModelInferResponse, name: str) -> list[Any]:
    """An output's elements, from whichever encoding it came in."""
    for position, output in enumerate(response.outputs):
        if output.name == name:
            if not response.raw_output_contents:
                ((_, values),) = output.contents.ListFields()
                return list(values)
            return _unpack(output.datatype, response.raw_output_contents[position])
    raise KeyError(name)


def _unpack(datatype: str, data: bytes) -> list[Any]:
    if datatype != "BYTES":
        return list(struct.unpack(f"<{len(data) // 4}{'f' if datatype == 'FP32' else 'I'}", data))
    found = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


async def until(desk: FakeDesk, condition: Callable[[], bool]) -> None:
    """Wait for something that the desk will hear of."""
    happened = asyncio.Event()
    desk.on_event = happened.set
    async with asyncio.timeout(PATIENCE):
        while not condition():
            happened.clear()
            await happened.wait()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody tells of."""
    async with asyncio.timeout(PATIENCE):
        for _ in itertools.count():
            if condition():
                return
            await asyncio.sleep(0.005)


async def ended(desk: FakeDesk, count: int = 1) -> None:
    """Until so many of the desk's calls have ended, cancelled or not."""
    await eventually(lambda: sum(call.ended is not None for call in desk.calls) >= count)


async def refusal_of(call: Any) -> grpc.aio.AioRpcError:
    """The error that a call ends with."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call was not refused")


def trailer(error: grpc.aio.AioRpcError, name: str) -> str | bytes | None:
    """One trailer of a refused call."""
    metadata: Any = error.trailing_metadata()
    return next((value for key, value in metadata if key == name), None)
