"""Calls to an engine by gRPC: who leaves ends it there, also while nobody reads; nobody there."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tests.engine.backends.remote.rig import Answer

from surgetank.engine.backends.remote.api import AnswerHead, Forward, Usage
from surgetank.engine.backends.remote.config import BackendConfig
from surgetank.engine.backends.remote.found import NobodyListens
from surgetank.engine.backends.remote.grpc_engine import GrpcCall, GrpcEngine
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.clock import ManualClock

PATIENCE = 10.0
CHUNK = pb.GenerateResponse(chunk=pb.GenerateStreamChunk(token_ids=[1])).SerializeToString()


class Endless:
    """An engine that answers until it is told to stop."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def answer(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield CHUNK
                await asyncio.sleep(0.001)
        finally:
            self.told.set()


class Counting:
    """Implements AnswerSink."""

    def __init__(self) -> None:
        self.events = 0
        self.began = asyncio.Event()

    def on_head(self, head: AnswerHead) -> None:
        assert head.status == 200

    def on_data(self, data: bytes, events: int, between: bool) -> None:
        self.events += events
        self.began.set()

    def direct(self) -> None:
        """Never."""

    def on_events(self, events: int, now: float) -> None:
        raise AssertionError("nothing is written past on_data()")

    def on_done(self, usage: Usage) -> None:
        raise AssertionError("it has no end")

    def on_lost(self, detail: str, begun: bool = True) -> None:
        raise AssertionError(detail)


@pytest.mark.parametrize("held", [False, True])
async def test_hanging_up_tells_the_engine(held: bool) -> None:
    engine, sink, server = Endless(), Counting(), grpc.aio.server()
    methods = {"Generate": grpc.unary_stream_rpc_method_handler(engine.answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("engine", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.disable()  # which would end the call, some time
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = GrpcCall(channel, ())
            call.send(Forward("/engine/Generate", (), b"", 1, stream=True), sink)
            await asyncio.wait_for(sink.began.wait(), PATIENCE)
            call.hold(held)
            await asyncio.sleep(0.02)  # it waits for its reader by now, if it is held
            call.hang_up()
            heard = sink.events
            await asyncio.wait_for(engine.told.wait(), PATIENCE)
    finally:
        gc.enable()
        await server.stop(0)
    assert sink.events == heard


async def test_where_nobody_listens_nothing_was_begun() -> None:
    engine = GrpcEngine(BackendConfig(url="grpc://127.0.0.1:1"), ManualClock())
    with pytest.raises(NobodyListens, match="Connection refused"):
        await engine.find()
    answer, call = Answer(), await engine.connect()
    call.send(Forward("/engine/Generate", (), b"", 1), answer)
    await answer.until(lambda answer: answer.lost)
    assert (answer.lost, answer.begun) == ("the call ended: UNAVAILABLE", False)
    await engine.aclose()
