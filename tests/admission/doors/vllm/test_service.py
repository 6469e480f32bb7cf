"""The engine service's other methods: who it is, how it is, how busy it is, and its tokenizer."""

import asyncio
import hashlib
import io
import json
import zipfile
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from tests.admission.doors.grpc.rig import PATIENCE, refusal_of
from tests.admission.doors.grpc.rig import serve as serve_kserve
from tests.admission.doors.vllm.rig import Rig, played, serve
from tests.fakes import FakeDesk
from tokenizers import Tokenizer

from surgetank.admission.doors.vllm.service import NAME
from surgetank.admission.gate import GateConfig
from surgetank.admission.outcome import Refusal
from surgetank.engine.protocols import smg_common_pb2 as common
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.vocabulary import Outcome, Reason

ONE_SLOT = GateConfig(in_flight_seqs=1)


def subscribe(rig: Rig, *, early: bool = True) -> Any:
    request = common.SubscribeKvEventsRequest(load_records_before_first_batch=early)
    return rig.stream("SubscribeKvEvents", request, common.KvEventBatch)


async def test_the_model_is_described() -> None:
    desk = FakeDesk()
    card = desk.served.card
    async with serve(desk) as rig:
        model = await rig.call("GetModelInfo", pb.GetModelInfoRequest())
        server = await rig.call("GetServerInfo", pb.GetServerInfoRequest())
    assert (model.served_model_name, model.is_generation) == ("tiny", True)
    assert (model.max_context_length, model.vocab_size) == (card.context_length, card.vocab_size)
    assert tuple(model.eos_token_ids) == card.eos_token_ids
    assert model.bos_token_id == desk.served.codec.token_id("<|endoftext|>")
    assert (server.max_num_seqs, server.block_size) == (8, 16)
    assert (server.data_parallel_size, server.model_dtype) == (1, "float32")


async def test_health_says_why_not() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        health = await rig.call("HealthCheck", pb.HealthCheckRequest())
        assert (health.healthy, health.message) == (True, "ready")
        desk.refuse_find = Refusal(Outcome.DRAINING, Reason.OPERATOR, "draining: no new requests")
        health = await rig.call("HealthCheck", pb.HealthCheckRequest())
        assert (health.healthy, health.message) == (False, "draining: no new requests")
        error = await refusal_of(rig.call("GetModelInfo", pb.GetModelInfoRequest()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_kubernetes_may_ask_for_it_by_name() -> None:
    async with serve(FakeDesk()) as rig:
        check = rig.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        status = (await check(health_pb2.HealthCheckRequest(service=NAME))).status
        assert status == health_pb2.HealthCheckResponse.SERVING


async def test_embeddings_are_refused_plainly() -> None:
    async with serve(FakeDesk()) as rig:
        error = await refusal_of(rig.call("Embed", pb.EmbedRequest()))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert error.details() == "embeddings are not served: this engine generates"


async def test_before_an_engine_without_token_ids_there_is_no_such_service() -> None:
    async with serve_kserve() as rig:
        call = rig.channel.unary_unary(f"/{NAME}/HealthCheck")(b"")
        assert (await refusal_of(call)).code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_tokenizer_is_an_archive_that_loads() -> None:
    desk = FakeDesk()
    async with serve(desk) as rig:
        request = common.GetTokenizerRequest()
        call = rig.stream("GetTokenizer", request, common.GetTokenizerChunk)
        chunks = [chunk async for chunk in call]
    data = b"".join(chunk.data for chunk in chunks)
    assert [bool(chunk.sha256) for chunk in chunks] == [*(len(chunks) - 1) * [False], True]
    assert chunks[-1].sha256 == hashlib.sha256(data).hexdigest()
    files = zipfile.ZipFile(io.BytesIO(data))
    tokenizer = Tokenizer.from_str(files.read("tokenizer.json").decode())
    assert tokenizer.encode("hello").ids == desk.served.codec.encode("hello")
    config = json.loads(files.read("tokenizer_config.json"))
    assert config["chat_template"] == desk.served.card.chat_template
    assert config["eos_token"] == "<|im_end|>"


async def test_load_counts_the_gates_queue_too() -> None:
    async with played(ONE_SLOT) as (rig, desk):
        desk.occupy()
        desk.send(prompt=30)
        told = await rig.call("GetLoads", pb.GetLoadsRequest())
        (load,) = told.loads
        assert (load.num_running_reqs, load.num_waiting_reqs, load.num_total_reqs) == (1, 1, 2)
        assert (load.num_waiting_uncached_tokens, load.max_running_requests) == (30, 1)
        desk.backend.die()
        assert not (await rig.call("GetLoads", pb.GetLoadsRequest())).loads


async def test_load_is_pushed_when_it_changes() -> None:
    async with played(ONE_SLOT) as (rig, desk), asyncio.timeout(PATIENCE):
        call = subscribe(rig)
        first = await call.read()
        assert (first.sequence_number, first.load.load_only, first.load.sample) == (0, True, 1)
        assert (first.load.running_requests, first.load.waiting_requests) == (0, 0)
        assert not first.load.HasField("engine_silence_ms")
        desk.backend.stalled = 2.5
        desk.occupy()
        second = await call.read()
        assert (second.load.running_requests, second.load.sample) == (1, 2)
        assert second.load.engine_silence_ms == 2500
        desk.clock.advance(1.0)  # nothing changes any more: a heartbeat
        third = await call.read()
        assert (third.load.running_requests, third.load.sample) == (1, 3)
        await rig.door.stop(PATIENCE)
        assert await call.code() is grpc.StatusCode.OK


async def test_who_wants_events_of_the_cache_is_told_that_there_are_none() -> None:
    async with serve(FakeDesk()) as rig:
        error = await refusal_of(subscribe(rig, early=False).read())
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("method", ["FlushCache", "StartProfile"])
async def test_what_is_not_offered_is_unimplemented(method: str) -> None:
    async with serve(FakeDesk()) as rig:
        error = await refusal_of(rig.channel.unary_unary(f"/{NAME}/{method}")(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
