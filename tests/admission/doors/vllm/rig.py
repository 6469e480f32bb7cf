"""A gRPC door on a free port, before a FakeDesk or a played engine, and an engine client for it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from tests.admission.rig import Rig as DeskRig
from tests.fakes import FakeDesk

from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.server import GrpcDoor, MakeSpeaker
from surgetank.admission.doors.vllm.own import OwnEngine
from surgetank.admission.doors.vllm.service import NAME
from surgetank.admission.gate import GateConfig
from surgetank.admission.snapshot import DeskSnapshot
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.clock import Clock, ManualClock


@dataclass
class Rig:
    """Door, and a channel to it."""

    door: GrpcDoor
    channel: Any  # grpc-stubs demand serializers that grpc does not
    port: int

    async def call(self, method: str, request: Any, **options: Any) -> Any:
        """A unary call of the engine service."""
        response = getattr(pb, f"{method}Response")
        return await self.channel.unary_unary(
            f"/{NAME}/{method}", lambda message: message.SerializeToString(), response.FromString
        )(request, **options)

    def stream(self, method: str, request: Any, response: Any, **options: Any) -> Any:
        """An open call with many responses."""
        return self.channel.unary_stream(
            f"/{NAME}/{method}", lambda message: message.SerializeToString(), response.FromString
        )(request, **options)

    def generate(self, request: pb.GenerateRequest, **options: Any) -> Any:
        """An open Generate: read(), cancel(), code()."""
        return self.stream("Generate", request, pb.GenerateResponse, **options)

    async def answer(self, request: pb.GenerateRequest, **options: Any) -> list[Any]:
        """All responses to a Generate."""
        return [response async for response in self.generate(request, **options)]


@asynccontextmanager
async def before(
    desk: Any,
    look: Callable[[], DeskSnapshot],
    clock: Clock,
    speaker: MakeSpeaker = OwnEngine,
    **config: Any,
) -> AsyncIterator[Rig]:
    """A rig for one test; stopped at once at its end."""
    door = GrpcDoor(GrpcConfig(port=0, **config), desk, clock, look=look, speaker=speaker)
    port = await door.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            yield Rig(door, channel, port)
        finally:
            await door.stop(0)


@asynccontextmanager
async def serve(desk: FakeDesk, clock: Clock | None = None, **config: Any) -> AsyncIterator[Rig]:
    """Before a FakeDesk, which is never looked at."""
    async with before(desk, DeskRig().desk.snapshot, clock or ManualClock(), **config) as rig:
        yield rig


@asynccontextmanager
async def played(gate: GateConfig | None = None) -> AsyncIterator[tuple[Rig, DeskRig]]:
    """Before a real desk and an engine that the test plays."""
    desk = DeskRig(gate)
    async with before(desk.desk, desk.desk.snapshot, desk.clock, health_interval=0.01) as rig:
        yield rig, desk


def ask(
    ids: Sequence[int] | None = (104, 101),
    *,
    request_id: str = "",
    stream: bool = False,
    **sampling: Any,
) -> pb.GenerateRequest:
    """A request as smg sends it."""
    request = pb.GenerateRequest(
        request_id=request_id, stream=stream, sampling_params=pb.SamplingParams(**sampling)
    )
    if ids is not None:
        request.tokenized.input_ids.extend(ids)
    return request
