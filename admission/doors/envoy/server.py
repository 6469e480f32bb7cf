"""The listener that Envoy speaks to: its services on a port of their own."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from surgetank.admission.doors.carried import Carriage
from surgetank.admission.doors.envoy import ratelimit
from surgetank.admission.doors.envoy import wire_pb2 as pb
from surgetank.admission.doors.envoy.config import EnvoyConfig
from surgetank.admission.doors.envoy.processing import Stream
from surgetank.admission.doors.grpc.exchange import RpcContext, address
from surgetank.admission.doors.http.exchange import TellLoad, tell_no_load

log = logging.getLogger(__name__)

PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"


class EnvoyDoor:
    """Made and used on one event loop, started once, stopped once."""

    def __init__(
        self, config: EnvoyConfig, carriage: Carriage, load: TellLoad = tell_no_load
    ) -> None:
        """`load`: headers that say how busy we are, for the answers that are carried."""
        self._config = config
        self._load = load
        self._carriage = carriage
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Listen; returns the port. OSError when the address cannot be had."""
        limit = ("grpc.max_receive_message_length", self._config.max_message_bytes)
        server = grpc.aio.server(options=[limit, ("grpc.so_reuseport", 0)])
        limiter = ratelimit.RateLimit(self._carriage)
        server.add_generic_rpc_handlers((self._handlers(), limiter.handlers()))
        where = f"{self._config.host}:{self._config.port}"
        try:
            port = server.add_insecure_port(where)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {where}") from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace: float) -> None:
        """Take nothing new, wait up to `grace` seconds for what is in flight, then end it."""
        if self._server is not None:
            await self._server.stop(grace)

    async def process(
        self, messages: AsyncIterator[pb.ProcessingRequest], context: RpcContext
    ) -> None:
        """One HTTP request. While it waits at the gate, Envoy may close the stream: so one task
        reads and another writes."""
        stream = Stream(
            self._carriage,
            address(context.peer()),
            picks_endpoint=self._config.picks_endpoint,
            load=self._load,
        )
        writer = asyncio.create_task(_write(stream, context))
        try:
            async for message in messages:
                await stream.take(message)
        finally:
            stream.close()
            writer.cancel()

    def _handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        method = grpc.stream_stream_rpc_method_handler(
            self.process, pb.ProcessingRequest.FromString, pb.ProcessingResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(PROCESSOR, {"Process": method})


async def _write(stream: Stream, context: RpcContext) -> None:
    try:
        while True:
            await context.write(await stream.outbox.get())
    except grpc.aio.BaseError as error:
        log.debug("a stream of Envoy's ended before its reply: %s", error)
