"""The engine's /metrics: a small HTTP server in threads of its own, beside the step loop."""

import logging
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Self

from surgetank.telemetry.exporter import Exporter

logger = logging.getLogger(__name__)


class ScrapeError(Exception):
    """The metrics address cannot be listened on; says where and why, in a sentence."""


class ScrapeServer:
    """Serves one exporter from entering to leaving the context."""

    def __init__(self, exporter: Exporter, host: str, port: int) -> None:
        """Raises ScrapeError when the address is taken or not ours."""
        handler = type("Handler", (_Handler,), {"exporter": exporter})
        try:
            self._server = _Server((host, port), handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ScrapeError(f"metrics on {host}:{port}: {reason}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a scraper that never reads must not keep the engine from stopping

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own looks its name up, which can block for long

    def handle_error(self, request: object, client_address: object) -> None:
        logger.warning("a scrape from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    exporter: Exporter
    timeout = 10  # seconds for a scraper to say what it wants and to read it

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "only /metrics is here")
            return
        content_type, body = self.exporter.render(self.headers.get("Accept", ""))
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not worth a line each."""
