"""vllm.grpc.engine.VllmEngine: its methods, each with its handler."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from surgetank.admission.doors.grpc import refusals
from surgetank.admission.doors.grpc.exchange import (
    Caller,
    RpcContext,
    Shared,
    caller_of,
    in_one,
    on_wire,
)
from surgetank.admission.doors.vllm.generation import (
    SERVICE,
    Generation,
    Look,
    Speaker,
    served_model,
)
from surgetank.admission.doors.vllm.loads import LoadPushes, load, loads
from surgetank.admission.outcome import Refused
from surgetank.engine.protocols import smg_common_pb2 as common
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.vocabulary import Reason

NAME = SERVICE
DESCRIPTIONS = ("GetModelInfo", "GetServerInfo", "GetTokenizer")
_NO_EMBEDDINGS = "embeddings are not served: this engine generates"
_NO_EVENTS = (
    "KV events are not told; load is, to subscribers that set load_records_before_first_batch"
)


class EngineService:
    """The handlers. What is not here, grpc itself answers UNIMPLEMENTED."""

    def __init__(self, shared: Shared, look: Look, speaker: Speaker) -> None:
        self._shared = shared
        self._look = look
        self._speaker = speaker
        self._running: defaultdict[tuple[str, str], set[Generation]] = defaultdict(set)

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """For Server.add_generic_rpc_handlers."""
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Generate": grpc.unary_stream_rpc_method_handler(self.generate),
                "Embed": _unary(self.embed, pb.EmbedRequest),
                "HealthCheck": _unary(self.health_check, pb.HealthCheckRequest),
                "Abort": _unary(self.abort, pb.AbortRequest),
                "GetLoads": _unary(self.get_loads, pb.GetLoadsRequest),
                "SubscribeKvEvents": grpc.unary_stream_rpc_method_handler(
                    self.subscribe_kv_events, common.SubscribeKvEventsRequest.FromString
                ),
                **{
                    name: grpc.unary_stream_rpc_method_handler(partial(self.describe, name))
                    for name in DESCRIPTIONS
                },
            },
        )

    async def generate(self, data: bytes, context: RpcContext) -> None:
        """One request; its bytes are read here, so that what is wrong with them gets a reason.

        Nothing is sent before the first token, so that a refusal can still be the whole answer.
        """
        cut = opened = False
        task = asyncio.current_task()

        def slow_reader() -> None:
            nonlocal cut
            cut, request.gone = True, Reason.SLOW_READER
            if task is not None:
                task.cancel()

        async def send(message: bytes) -> None:
            nonlocal opened
            if not opened:
                opened = True
                await on_wire(in_one(context.send_initial_metadata(())))
            await on_wire(context.write(message))

        caller = caller_of(context, self._shared.clock)
        request = self._speaker.generation(caller, data, slow_reader)
        key = _credentials(caller), request.request.request_id
        self._running[key].add(request)
        try:
            refusal = await request.run(send)
        except asyncio.CancelledError:
            if cut:
                await refusals.cut(context)
            raise
        finally:
            self._running[key].discard(request)
            if not self._running[key]:
                del self._running[key]
        await request.conclude(context, caller, refusal)

    async def describe(self, method: str, data: bytes, context: RpcContext) -> AsyncIterator[bytes]:
        """The engine about itself. On the wire a single answer is a stream of one message."""
        try:
            async for message in self._speaker.describe(method, data):
                yield message
        except Refused as refused:
            await refusals.abort(context, refused.refusal, "")
        except grpc.aio.AioRpcError as error:  # the engine's own words
            await context.abort(error.code(), error.details() or "")

    async def embed(self, _: pb.EmbedRequest, context: RpcContext) -> pb.EmbedResponse:
        """Not of this engine."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, _NO_EMBEDDINGS)

    async def health_check(
        self, _: pb.HealthCheckRequest, __: RpcContext
    ) -> pb.HealthCheckResponse:
        """Whether a request would be taken now, and why not."""
        try:
            served_model(self._shared)
        except Refused as refused:
            return pb.HealthCheckResponse(message=refused.refusal.message)
        healthy = self._shared.ready()
        return pb.HealthCheckResponse(healthy=healthy, message="ready" if healthy else "closing")

    async def abort(self, request: pb.AbortRequest, context: RpcContext) -> pb.AbortResponse:
        """End requests that were made with the same credentials; unknown ids have ended already."""
        credentials = _credentials(caller_of(context, self._shared.clock))
        for request_id in filter(None, request.request_ids):  # "" is of all that named none
            for running in tuple(self._running.get((credentials, request_id), ())):
                running.abort()
        return pb.AbortResponse()

    async def get_loads(self, _: pb.GetLoadsRequest, __: RpcContext) -> pb.GetLoadsResponse:
        """How busy we are: one rank, whatever is asked."""
        return loads(self._look(), self._shared.clock.wall())

    async def subscribe_kv_events(
        self, request: common.SubscribeKvEventsRequest, context: RpcContext
    ) -> None:
        """Load alone, as it changes, until the subscriber leaves or the door is shut."""
        if not request.load_records_before_first_batch:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, _NO_EVENTS)
        await on_wire(context.send_initial_metadata(()))
        pushes, clock = LoadPushes(), self._shared.clock
        closing = asyncio.ensure_future(self._shared.closing.wait())
        try:
            while not closing.done():
                batch = pushes.due(load(self._look()), clock.monotonic(), clock.wall())
                if batch is not None:
                    await on_wire(context.write(batch))
                await asyncio.wait((closing,), timeout=self._shared.config.health_interval)
        finally:
            closing.cancel()


def _unary(handler: Callable[..., Any], kind: type[Message]) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        handler, kind.FromString, lambda response: response.SerializeToString()
    )


def _credentials(caller: Caller) -> str:
    """What a call shows to prove who it is; only who shows the same may abort its request."""
    return caller.header("authorization")
