"""The gRPC listener: services on a port, from start to drained stop."""

from typing import Any

import grpc
from grpc_channelz.v1 import channelz
from grpc_reflection.v1alpha import reflection

from surgetank.admission.doors.grpc import health, service
from surgetank.admission.doors.grpc.config import GrpcConfig
from surgetank.admission.doors.grpc.exchange import Shared
from surgetank.admission.doors.grpc.tongue import AnyDesk, TextTongue, Tongue
from surgetank.telemetry.clock import Clock

CHANNELZ = "grpc.channelz.v1.Channelz"


class GrpcDoor:
    """Serves the desk over gRPC. Made and used on one event loop, started once, stopped once."""

    def __init__(
        self, config: GrpcConfig, desk: AnyDesk, clock: Clock, tongue: Tongue | None = None
    ) -> None:
        """`tongue`: of the kind of engine behind the desk; None: it takes token ids."""
        self._config = config
        self._shared = Shared(config, desk, clock, tongue or TextTongue())
        self._service = service.InferenceService(self._shared)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Listen; returns the port. OSError when the address cannot be had."""
        # Typed as Any: grpc-stubs think that reflection and channelz take only the other server.
        server: Any = grpc.aio.server(options=self._config.channel_options())
        checks = health.Health(self._shared, (service.NAME,))
        server.add_generic_rpc_handlers((self._service.handlers(), checks.handlers()))
        names = [service.NAME, health.NAME, reflection.SERVICE_NAME]
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
