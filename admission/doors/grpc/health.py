"""grpc.health.v1: readiness as load balancers and kubelets ask for it, with Watch."""

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from surgetank.admission.doors.grpc.exchange import RpcContext, Shared, on_wire

NAME: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
OVERALL = ""

_Request = health_pb2.HealthCheckRequest
_Response = health_pb2.HealthCheckResponse


class Health:
    """Serving is what the desk's ready() says, looked at anew each time; nobody has to set it."""

    def __init__(self, shared: Shared, services: tuple[str, ...]) -> None:
        """`services`: full names that have a status of their own, besides the overall one."""
        self._shared = shared
        self._known = frozenset((OVERALL, *services))

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """For Server.add_generic_rpc_handlers."""
        methods: dict[str, Any] = {
            "Check": grpc.unary_unary_rpc_method_handler(
                self.check, _Request.FromString, _Response.SerializeToString
            ),
            "Watch": grpc.unary_stream_rpc_method_handler(
                self.watch, _Request.FromString, _Response.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    async def check(self, request: Any, context: RpcContext) -> Any:
        """The status now; NOT_FOUND for a service that is not ours."""
        if request.service not in self._known:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service[:64]!r}")
        return _Response(status=self._status(request.service))

    async def watch(self, request: Any, context: RpcContext) -> None:
        """The status now and at every change, until the client leaves or the door is shut."""
        last = None
        closing = asyncio.ensure_future(self._shared.closing.wait())
        try:
            while True:
                closed = self._shared.closing.is_set()
                status = self._status(request.service)
                if status != last:
                    await on_wire(context.write(_Response(status=status)))
                    last = status
                if closed:
                    return
                await asyncio.wait((closing,), timeout=self._shared.config.health_interval)
        finally:
            closing.cancel()

    def _status(self, service: str) -> Any:
        if service not in self._known:
            return _Response.SERVICE_UNKNOWN
        return _Response.SERVING if self._shared.ready() else _Response.NOT_SERVING
