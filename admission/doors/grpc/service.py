"""inference.GRPCInferenceService: its methods, each with its handler."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, Protocol

import grpc

from surgetank.admission.doors.grpc import describe, refusals
from surgetank.admission.doors.grpc import inference_pb2 as pb
from surgetank.admission.doors.grpc.exchange import (
    Caller,
    RpcContext,
    Shared,
    caller_of,
    conclude,
)
from surgetank.admission.doors.grpc.infer import Infer, method
from surgetank.admission.doors.grpc.query import VERSION, check_version
from surgetank.admission.doors.grpc.responder import Responder
from surgetank.admission.doors.grpc.stream import InferStream
from surgetank.admission.gateway_signals import FORMAT_HEADER
from surgetank.admission.outcome import Refusal, Refused
from surgetank.admission.work import Served
from surgetank.telemetry.vocabulary import Outcome, Reason

NAME: str = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name


class Named(Protocol):
    """A request about one model."""

    name: str
    version: str


class InferenceService:
    """The handlers. What is not here, grpc itself answers UNIMPLEMENTED."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._desk = shared.desk
        self._streams: set[InferStream] = set()

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """For Server.add_generic_rpc_handlers. The infer methods get the bytes as they came, so
        that a message too large or unreadable is refused with a reason, like any other."""
        unary: dict[str, Callable[..., Any]] = {
            "ServerLive": self.server_live,
            "ServerReady": self.server_ready,
            "ServerMetadata": self.server_metadata,
            "ModelReady": self.model_ready,
            "ModelMetadata": self.model_metadata,
            "ModelConfig": self.model_config,
            "ModelStatistics": self.model_statistics,
            "RepositoryIndex": self.repository_index,
        }
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                handler,
                getattr(pb, f"{name}Request").FromString,
                getattr(pb, f"{name}Response").SerializeToString,
            )
            for name, handler in unary.items()
        }
        methods["ModelInfer"] = grpc.unary_unary_rpc_method_handler(self.model_infer)
        methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self.model_stream_infer)
        return grpc.method_handlers_generic_handler(NAME, methods)

    def close(self) -> None:
        """Open streams take no more requests, and end with those they have."""
        for stream in self._streams:
            stream.close()

    async def model_infer(self, data: bytes, context: RpcContext) -> bytes:
        """One request, one response."""
        caller = caller_of(context, self._shared.clock)
        exchange = Infer(self._shared, caller, data, decoupled=False)
        answer = b""

        async def keep(responder: Responder) -> None:
            nonlocal answer
            if responder.complete:
                answer = responder.whole()

        refusal = await exchange.run(keep)
        await conclude(self._shared, context, caller, refusal, exchange.ticket.id)
        return answer

    async def model_stream_infer(self, messages: AsyncIterator[bytes], context: RpcContext) -> None:
        """Many requests, many responses."""
        caller = caller_of(context, self._shared.clock)
        if len(self._streams) >= self._shared.config.max_streams:
            await self._refuse_stream(context, caller)
        stream = InferStream(self._shared, context, caller)
        self._streams.add(stream)
        try:
            await stream.run(messages)
            await conclude(self._shared, context, caller)
        except asyncio.CancelledError:
            if stream.cut:
                await refusals.cut(context)
            raise
        finally:
            self._streams.discard(stream)

    async def server_live(self, _: pb.ServerLiveRequest, __: RpcContext) -> pb.ServerLiveResponse:
        """Whether this process answers."""
        return pb.ServerLiveResponse(live=True)

    async def server_ready(self, _: pb.ServerReadyRequest, __: Any) -> pb.ServerReadyResponse:
        """Whether a request would be taken now."""
        return pb.ServerReadyResponse(ready=self._shared.ready())

    async def server_metadata(
        self, _: pb.ServerMetadataRequest, __: RpcContext
    ) -> pb.ServerMetadataResponse:
        """Who this is."""
        return describe.server_metadata()

    async def model_ready(self, request: pb.ModelReadyRequest, _: Any) -> pb.ModelReadyResponse:
        """Whether this model would be served now; false for an unknown one, as Triton says."""
        ready = request.version in ("", VERSION) and self._shared.ready()
        return pb.ModelReadyResponse(
            ready=ready and describe.unavailable(self._desk, request.name) is None
        )

    async def model_metadata(
        self, request: pb.ModelMetadataRequest, context: RpcContext
    ) -> pb.ModelMetadataResponse:
        """The model's tensors."""
        await self._find(request, context)
        return describe.model_metadata(request.name)

    async def model_config(
        self, request: pb.ModelConfigRequest, context: RpcContext
    ) -> pb.ModelConfigResponse:
        """The model's configuration."""
        served = await self._find(request, context)
        return pb.ModelConfigResponse(config=describe.model_config(request.name, served))

    async def model_statistics(
        self, request: pb.ModelStatisticsRequest, context: RpcContext
    ) -> pb.ModelStatisticsResponse:
        """Counts since the door opened, of one model or (no name) of every one that was asked."""
        statistics = self._shared.statistics
        if not request.name:
            return pb.ModelStatisticsResponse(model_stats=statistics.messages())
        served = await self._find(request, context)
        message = statistics.of(served.name).message(served.name)
        return pb.ModelStatisticsResponse(model_stats=[message])

    async def repository_index(
        self, request: pb.RepositoryIndexRequest, _: RpcContext
    ) -> pb.RepositoryIndexResponse:
        """Models and whether they are ready."""
        return describe.repository_index(self._desk, request.ready)

    async def _find(self, request: Named, context: RpcContext) -> Served:
        try:
            check_version(request.version)
            served: Served = self._desk.find(request.name)
        except Refused as refused:
            await refusals.abort(context, refused.refusal, "")
        return served

    async def _refuse_stream(self, context: RpcContext, caller: Caller) -> NoReturn:
        """One stream too many: counted as one request, whatever it would have carried."""
        limit = self._shared.config.max_streams
        refusal = Refusal(
            Outcome.OVERLOAD,
            Reason.QUEUE_REQUESTS,
            f"{limit} streams are open; allowed: {limit}",
            measured=limit,
            limit=limit,
            limit_name="max_streams",
        )
        ticket = self._desk.arrive("grpc", caller.headers, caller.peer)
        ticket.route = method(decoupled=True)
        refused = self._desk.refuse(ticket, ticket.barred or refusal)
        load = self._shared.load(caller.header(FORMAT_HEADER))
        await refusals.abort(context, refused, ticket.id, load)
