"""Answers a scrape: renders a registry in the format asked for, and serves it where told to."""

import asyncio
import logging
import platform
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from surgetank import __version__
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.exposition import ReadingCollector
from surgetank.telemetry.registry import Registry

log = logging.getLogger(__name__)

Encoder = Callable[[Collector], bytes]


class Exporter:
    """Renders one registry, and times itself. Use one of the two renderers in a process."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds = registry.histogram("telemetry_scrape_seconds").at()
        build = {"version": __version__, "python": platform.python_version()}
        registry.source("build_info", lambda: [(build, 1)])

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Content type and body, from any thread; `accept` is the scraper's Accept header."""
        with self._lock:  # scrapes take turns, so that what they count is written by one at a time
            begun = self._clock.monotonic()
            encode, content_type = _encoder(accept)
            body = encode(ReadingCollector(self._registry.read()))
            self._seconds.observe(self._clock.monotonic() - begun)
        return content_type, body

    async def render_off_loop(self, accept: str = "") -> tuple[str, bytes]:
        """The same for an event loop that writes the metrics.

        Reads them on the loop, where nothing can change meanwhile, and encodes in a thread.
        """
        begun = self._clock.monotonic()
        encode, content_type = _encoder(accept)
        readings = self._registry.read()
        body = await asyncio.to_thread(encode, ReadingCollector(readings))
        self._seconds.observe(self._clock.monotonic() - begun)
        return content_type, body


def _encoder(accept: str) -> tuple[Encoder, str]:
    """OpenMetrics where it is accepted, else Prometheus text.

    Decided here and not by prometheus_client's own choice, which raises on a version it cannot read
    and repeats the client's words in the content type.
    """
    if "application/openmetrics-text" in accept:
        return openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest, CONTENT_TYPE_PLAIN_0_0_4


class ListenError(Exception):
    """An address cannot be listened on; the message names it and says why."""


class MetricsServer:
    """GET /metrics on a listener of its own, in daemon threads: for a process without a web server.

    Raises ListenError when the address is taken or not ours. Port 0 picks a free one.
    """

    def __init__(self, exporter: Exporter, host: str, port: int) -> None:
        handler = partial(_Handler, exporter)
        try:
            self._server = _Server((host, port), handler)
        except (OSError, OverflowError) as error:
            raise ListenError(f"metrics: cannot listen on {host}:{port}: {error}") from error
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; a scrape in progress is cut off."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own looks its name up, which can block for long

    def handle_error(self, request: object, client_address: object) -> None:
        log.warning("scrape from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0  # seconds for a half-sent request

    def __init__(self, exporter: Exporter, *connection: Any) -> None:
        self._exporter = exporter
        super().__init__(*connection)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "only /metrics is served here")
            return
        content_type, body = self._exporter.render(self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
