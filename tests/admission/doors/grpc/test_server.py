"""The listener: health with Watch, reflection, channelz, ports, pings, header limits."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import ValidationError
from tests.admission.doors.grpc.rig import EOF, PATIENCE, Rig, ask, refusal_of, serve, texts, until
from tests.fakes import FakeDesk

from surgetank.admission.doors.grpc import service
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.server import GrpcDoor
from surgetank.telemetry.clock import ManualClock
from surgetank.telemetry.vocabulary import FinishReason

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def health(rig: Rig, method: str, name: str) -> Any:
    """A call of grpc.health.v1."""
    kind = rig.channel.unary_unary if method == "Check" else rig.channel.unary_stream
    return kind(
        f"/grpc.health.v1.Health/{method}",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )(health_pb2.HealthCheckRequest(service=name))


@pytest.mark.parametrize("name", ["", service.NAME])
async def test_health_check_follows_readiness(name: str) -> None:
    async with serve() as rig:
        assert (await health(rig, "Check", name)).status == SERVING
        rig.desk.is_ready = False
        assert (await health(rig, "Check", name)).status == NOT_SERVING
        error = await refusal_of(health(rig, "Check", "nobody"))
        assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_health_watch_flips_by_itself_and_ends_with_the_door() -> None:
    async with serve(health_interval=0.01) as rig:
        watch = health(rig, "Watch", "")
        async with asyncio.timeout(PATIENCE):
            assert (await watch.read()).status == SERVING
            rig.desk.is_ready = False
            assert (await watch.read()).status == NOT_SERVING
            rig.desk.is_ready = True
            assert (await watch.read()).status == SERVING
            stopping = asyncio.ensure_future(rig.door.stop(grace=PATIENCE))
            assert (await watch.read()).status == NOT_SERVING
            assert await watch.read() is EOF
        async with asyncio.timeout(5):
            await stopping


async def test_health_watch_of_an_unknown_service() -> None:
    async with serve() as rig:
        assert (await health(rig, "Watch", "nobody").read()).status == SERVICE_UNKNOWN


async def test_reflection_lists_and_describes_the_services() -> None:
    async with serve() as rig:
        stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=service.NAME),
        ]
        call = stub.ServerReflectionInfo(iter(requests))
        listed, described = [response async for response in call]
        assert {s.name for s in listed.list_services_response.service} == {
            "grpc.channelz.v1.Channelz",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "inference.GRPCInferenceService",
        }
        (file,) = described.file_descriptor_response.file_descriptor_proto
        assert b"ModelStreamInfer" in file


async def test_channelz_counts_the_calls() -> None:
    async with serve() as rig:
        await rig.infer(ask())
        stub = channelz_pb2_grpc.ChannelzStub(rig.channel)
        servers = (await stub.GetServers(channelz_pb2.GetServersRequest())).server
        newest = max(servers, key=lambda server: server.ref.server_id)
        assert (newest.data.calls_started, newest.data.calls_succeeded) == (2, 1)


async def test_channelz_can_be_left_out() -> None:
    async with serve(channelz=False) as rig:
        stub = channelz_pb2_grpc.ChannelzStub(rig.channel)
        error = await refusal_of(stub.GetServers(channelz_pb2.GetServersRequest()))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_taken_port_is_one_sentence() -> None:
    async with serve() as rig:
        second = GrpcDoor(GrpcConfig(port=rig.port), FakeDesk(), ManualClock())
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{rig.port}: the port is"):
            await second.start()


async def test_pings_during_a_long_prefill_are_welcome() -> None:
    """Two silent streams, both pinging once a second, as fast as grpcio goes: the door that allows
    it keeps its client for longer than the one that does not."""
    options = [
        ("grpc.keepalive_time_ms", 20),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    patient, strict = FakeDesk(), FakeDesk()
    async with (
        serve(patient, min_ping_interval=0.5) as kind_rig,
        serve(strict, min_ping_interval=3600) as strict_rig,
        grpc.aio.insecure_channel(f"127.0.0.1:{kind_rig.port}", options=options) as kind_channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{strict_rig.port}", options=options) as channel,
    ):
        kept = replace(kind_rig, channel=kind_channel).stream()
        await kept.write(ask(stream=True))
        await until(patient, lambda: len(patient.calls) == 1)
        lost = replace(strict_rig, channel=channel).stream()
        await lost.write(ask(stream=True))
        error = await refusal_of(lost.read())
        assert error.details() == "Too many pings"
        patient.calls[0].emit([65], finish=FinishReason.STOP)
        patient.calls[0].end()
        assert texts((await kept.read()).infer_response) == ["b"]


async def test_headers_beyond_the_limit_are_refused() -> None:
    async with serve(max_metadata_bytes=2048) as rig:
        error = await refusal_of(rig.infer(ask(), metadata=(("x-long", "x" * 4096),)))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not rig.desk.tickets


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(ValidationError, match=r"port\n.*less than or equal to 65535"):
        GrpcConfig(port=70_000)
    with pytest.raises(ValidationError, match="max_stream\n"):
        GrpcConfig.model_validate({"max_stream": 1})
