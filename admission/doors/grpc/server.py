"""The gRPC listener: services on a port, from start to drained stop."""

from collections.abc import Callable
from typing import Any

import grpc
from grpc_channelz.v1 import channelz
from grpc_reflection.v1alpha import reflection

from surgetank.admission.doors.grpc import health, service
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.exchange import Shared
from surgetank.admission.doors.grpc.tongue import AnyDesk, TextTongue, Tongue
from surgetank.admission.doors.vllm import service as vllm
from surgetank.admission.doors.vllm.generation import Look, Speaker
from surgetank.admission.doors.vllm.own import OwnEngine
from surgetank.admission.gateway_signals import load_trailers, read_signals
from surgetank.telemetry.clock import Clock

CHANNELZ = "grpc.channelz.v1.Channelz"
MakeSpeaker = Callable[[Shared, Look], Speaker] | None


class GrpcDoor:
    """Serves the desk over gRPC. Made and used on one event loop, started once, stopped once."""

    def __init__(
        self,
        config: GrpcConfig,
        desk: AnyDesk,
        clock: Clock,
        tongue: Tongue | None = None,
        look: Look | None = None,
        speaker: MakeSpeaker = OwnEngine,
    ) -> None:
        """`tongue`: of the kind of engine behind the desk; None: it takes token ids. `look`: how
        busy the desk is; None: nobody may be told, so that vLLM's engine protocol is not spoken.
        `speaker`: what it is spoken with to that engine; None: nothing."""
        self._config = config
        self._shared = Shared(config, desk, clock, tongue or TextTongue())
        self._service = service.InferenceService(self._shared)
        self._engine: vllm.EngineService | None = None
        if look is not None and speaker is not None:
            self._engine = vllm.EngineService(self._shared, look, speaker(self._shared, look))
        if look is not None and config.load_trailers:
            self._shared.load = lambda wanted: load_trailers(read_signals(look()), wanted)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Listen; returns the port. OSError when the address cannot be had."""
        # Typed as Any: grpc-stubs think that reflection and channelz take only the other server.
        server: Any = grpc.aio.server(options=self._config.channel_options())
        served, handlers = [service.NAME], [self._service.handlers()]
        if self._engine is not None:
            served.append(vllm.NAME)
            handlers.append(self._engine.handlers())
        checks = health.Health(self._shared, tuple(served))
        server.add_generic_rpc_handlers((*handlers, checks.handlers()))
        names = [*served, health.NAME, reflection.SERVICE_NAME]
        if self._config.channelz:
            channelz.add_channelz_servicer(server)
            names.append(CHANNELZ)
        reflection.enable_server_reflection(names, server)
        address = f"{self._config.host}:{self._config.port}"
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(
                f"the gRPC door cannot listen on {address}: the port is taken by another process "
                "or the address is not this machine's (settings: host, port)"
            ) from error
        await server.start()
        self._server = server
        return int(port)

    async def stop(self, grace: float) -> None:
        """Take nothing new, wait up to `grace` seconds for what is in flight, then end it."""
        self._shared.closing.set()
        self._service.close()
        if self._server is not None:
            await self._server.stop(grace)
