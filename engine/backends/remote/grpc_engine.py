"""An engine that speaks vLLM's gRPC protocol: asked about itself, and its answers passed on.

The bytes of requests and responses go by as they are; responses are only read to count tokens.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from surgetank.engine.backends.remote.api import AnswerHead, AnswerSink, Forward, Usage
from surgetank.engine.backends.remote.config import BackendConfig, host_and_port
from surgetank.engine.backends.remote.found import Found, Look, NobodyListens, NotFound, Signals
from surgetank.engine.backends.remote.grpc_found import Count, found, signals
from surgetank.engine.protocols import vllm_engine_pb2 as pb
from surgetank.telemetry.clock import Clock

log = logging.getLogger(__name__)

SERVICE: str = pb.DESCRIPTOR.services_by_name["VllmEngine"].full_name
STATUS, MESSAGE = "grpc-status", "grpc-message"  # of an answer's head: the engine's own
_PATIENCE = 2.0  # seconds for what it says of itself
_DESCRIBED = 60.0  # seconds for an answer about itself that a client reads, such as a tokenizer
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),  # else a restarted engine is found minutes later
    ("grpc.max_receive_message_length", -1),
)
_UNSENT = "failed to connect"  # how grpc begins when a call found no connection
_REFUSED = "Connection refused"  # in it, where nobody listens
_Code = grpc.StatusCode
_HTTP = {
    _Code.CANCELLED: 499,
    _Code.INVALID_ARGUMENT: 400,
    _Code.FAILED_PRECONDITION: 400,
    _Code.OUT_OF_RANGE: 400,
    _Code.UNAUTHENTICATED: 401,
    _Code.PERMISSION_DENIED: 403,
    _Code.NOT_FOUND: 404,
    _Code.RESOURCE_EXHAUSTED: 429,
    _Code.UNIMPLEMENTED: 501,
    _Code.UNAVAILABLE: 503,
    _Code.DEADLINE_EXCEEDED: 504,
}


class GrpcCall:
    """One Generate. Implements underway.Line."""

    used = False  # each is new

    def __init__(self, channel: Any, credentials: tuple[tuple[str, str], ...]) -> None:
        self.heard = False
        self._channel = channel
        self._credentials = credentials
        self._reads = asyncio.Event()
        self._reads.set()
        self._task: asyncio.Task[None] | None = None
        self._sink: AnswerSink | None = None

    def send(self, request: Forward, sink: AnswerSink) -> None:
        self._sink = sink
        self._task = asyncio.get_running_loop().create_task(self._follow(request))

    def hold(self, held: bool) -> None:
        if held:
            self._reads.clear()
        else:
            self._reads.set()

    def told(self) -> Usage | None:
        """Its last message is the call's end, too."""
        return None

    def hang_up(self) -> None:
        self._sink = None
        if self._task is not None:
            self._task.cancel()

    async def _follow(self, request: Forward) -> None:
        own = {name for name, _ in self._credentials}
        headers = [pair for pair in request.headers if pair[0] not in own]
        call = self._channel.unary_stream(request.path)(
            request.body, metadata=(*headers, *self._credentials)
        )
        count = Count()
        try:
            async for data in call:
                self._pass_on(data, count.add(data))
                await self._reads.wait()
        except grpc.aio.AioRpcError as error:
            self._failed(error)
        except DecodeError:
            self._lose("its answer cannot be read")
        except Exception:  # a request must end, also by our own faults
            log.exception("an answer could not be passed on")
            self._lose("a fault in the sidecar")
        else:
            self._done(count.usage())
        finally:
            call.cancel()  # grpc does so by itself only while it is read, or collected as garbage

    def _pass_on(self, data: bytes, events: int) -> None:
        if not self.heard:
            self.heard = True
            self._answer(AnswerHead(200, ()))
        if self._sink is not None:
            self._sink.on_data(data, events, True)

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        """A refusal, which has its own words, or nobody there to say any."""
        code, details = error.code(), error.details() or ""
        trailers: Any = error.trailing_metadata() or ()  # pairs, whatever grpc-stubs think
        gone = code is _Code.UNAVAILABLE and not trailers
        if gone or self.heard:
            log.info("a call to the engine ended: %s: %s", code.name, details)
            what = f"the call ended: {code.name}" if gone else f"{code.name}: {details}"
            self._lose(what, begun=not details.startswith(_UNSENT))
            return
        number: tuple[int, str] = code.value
        told = [(name, value) for name, value in trailers if isinstance(value, str)]
        told += [(STATUS, str(number[0])), (MESSAGE, details)]
        self._answer(AnswerHead(_HTTP.get(code, 500), tuple(told)))
        self._done(Usage())

    def _answer(self, head: AnswerHead) -> None:
        if self._sink is not None:
            self._sink.on_head(head)

    def _done(self, usage: Usage) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.on_done(usage)

    def _lose(self, detail: str, *, begun: bool = True) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.on_lost(detail, begun)


def _channel(config: BackendConfig) -> Any:
    """Its connection; one that fails is made again and again."""
    address = host_and_port({"url": config.url})
    if config.tls is None:
        return grpc.aio.insecure_channel(address, _OPTIONS)
    name, file = config.server_name, config.ca_file
    named = () if name is None else (("grpc.ssl_target_name_override", name),)
    trusted = grpc.ssl_channel_credentials(None if file is None else file.read_bytes())
    return grpc.aio.secure_channel(address, trusted, (*_OPTIONS, *named))


class GrpcEngine:
    """One address. Implements watch.Probe and underway.Lines; belongs to one event loop."""

    def __init__(self, config: BackendConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        # Typed as Any: grpc-stubs demand serializers that grpc does not.
        self._channel: Any = _channel(config)

    async def find(self) -> Found:
        """What is there. Raises NotFound."""
        await self._healthy()
        model = await self._ask("GetModelInfo", pb.GetModelInfoResponse)
        server = await self._ask("GetServerInfo", pb.GetServerInfoResponse)
        try:
            loads = await self._ask("GetLoads", pb.GetLoadsResponse)
        except NotFound as error:
            log.info("it tells no load: %s", error)
            loads = None
        return found(self._config, model, server, loads)

    async def look(self, found: Found) -> Look:
        """Its load, as far as it tells any. Raises NotFound when it does not answer."""
        await self._healthy()
        server = await self._ask("GetServerInfo", pb.GetServerInfoResponse)
        uptime = server.uptime_seconds or None
        if not found.metrics:
            return Look(Signals(), uptime=uptime)
        loads = await self._ask("GetLoads", pb.GetLoadsResponse)
        return Look(signals(loads, self._clock.monotonic()), uptime=uptime)

    def describe(
        self, method: str, request: bytes, within: float = _DESCRIBED
    ) -> AsyncIterator[bytes]:
        """Its own answer to a question about itself: one message or more, `within` seconds."""
        call: AsyncIterator[bytes] = self._channel.unary_stream(f"/{SERVICE}/{method}")(
            request, metadata=self._config.credentials, timeout=within
        )
        return call

    def take(self) -> None:
        """No call waits for a request."""

    async def connect(self) -> GrpcCall:
        """A call of its own for each request; its connection is grpc's to make."""
        return GrpcCall(self._channel, self._config.credentials)

    def close(self) -> None:
        """Nothing waits."""

    async def aclose(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _healthy(self) -> None:
        """Raises NotFound when it is not."""
        health = await self._ask("HealthCheck", pb.HealthCheckResponse)
        if not health.healthy:
            raise NotFound(f"{self._config.url} is not healthy: {health.message}")

    async def _ask(self, method: str, kind: type[Message]) -> Any:
        try:
            (answer,) = [message async for message in self.describe(method, b"", _PATIENCE)]
            return kind.FromString(answer)
        except grpc.aio.AioRpcError as error:
            missing = NobodyListens if _REFUSED in (error.details() or "") else NotFound
            raise missing(f"{self._config.url}: {method}: {error.details()}") from None
        except (ValueError, DecodeError):  # not one message, or not that one
            raise NotFound(f"{self._config.url}: {method}: its answer cannot be read") from None
