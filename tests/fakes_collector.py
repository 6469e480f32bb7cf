"""OpenTelemetry collectors on loopback: by HTTP and by gRPC, and one that never answers."""

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATIENCE = 20.0  # seconds; a test that needs them has failed


class Kept:
    """What a collector took."""

    def __init__(self) -> None:
        self.bodies: list[ExportTraceServiceRequest] = []  # of all exports that it accepted
        self.headers: list[dict[str, str]] = []  # of all exports
        self.heard = threading.Condition()

    @property
    def spans(self) -> list[Span]:
        """Every span that it took, in the order of arrival."""
        return [
            span
            for body in self.bodies
            for of_resource in body.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    def wait(self, spans: int) -> list[Span]:
        """The spans, once there are so many."""
        with self.heard:
            if not self.heard.wait_for(lambda: len(self.spans) >= spans, PATIENCE):
                raise AssertionError(f"{len(self.spans)} spans came; wanted {spans}")
            return self.spans

    def wait_exports(self, count: int) -> None:
        """Until it was asked so often, whatever it answered."""
        with self.heard:
            if not self.heard.wait_for(lambda: len(self.headers) >= count, PATIENCE):
                raise AssertionError(f"{len(self.headers)} exports came; wanted {count}")


class Collector(Kept):
    """Takes OTLP over HTTP and answers the given statuses in turn, then 200 for ever."""

    def __init__(self, statuses: Sequence[int] = (), retry_after: int = 0) -> None:
        super().__init__()
        self.retry_after = retry_after  # seconds
        self.paths: list[str] = []
        self.statuses = list(statuses)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class GrpcCollector(Kept, TraceServiceServicer):
    """Takes OTLP over gRPC and answers the given codes in turn, then OK for ever."""

    def __init__(self, codes: Sequence[grpc.StatusCode] = ()) -> None:
        super().__init__()
        self.codes = list(codes)
        self._server = grpc.server(ThreadPoolExecutor(2))
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.url = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def Export(
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        with self.heard:
            code = self.codes.pop(0) if self.codes else grpc.StatusCode.OK
            self.headers.append({key: str(value) for key, value in context.invocation_metadata()})
            if code is grpc.StatusCode.OK:
                self.bodies.append(request)
            self.heard.notify_all()
        if code is not grpc.StatusCode.OK:
            context.abort(code, "no")
        return ExportTraceServiceResponse()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, collector: Collector, *connection: Any) -> None:
        self._collector = collector
        super().__init__(*connection)

    def do_POST(self) -> None:
        collector = self._collector
        body = self.rfile.read(int(self.headers["content-length"]))
        with collector.heard:
            status = collector.statuses.pop(0) if collector.statuses else 200
            collector.paths.append(self.path)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            if status == 200:
                collector.bodies.append(ExportTraceServiceRequest.FromString(body))
            collector.heard.notify_all()
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(status)
        self.send_header("retry-after", str(collector.retry_after))
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class BlackHole:
    """Accepts every connection, and never reads nor answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def wait(self) -> socket.socket:
        """The first connection, once it is there; the caller closes it."""
        self._listener.settimeout(PATIENCE)
        return self._listener.accept()[0]


def attributes(pairs: Sequence[KeyValue]) -> dict[str, str | int | float | bool]:
    """Attributes as a plain table."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for each in pairs
    }
