"""Answers a scrape: renders a registry in the format asked for, and times itself."""

import platform
import threading
from collections.abc import Callable

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from surgetank import __version__
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.exposition import Writer
from surgetank.telemetry.registry import Registry


class Exporter:
    """Renders one registry: reads it where begin() is called, and writes the page anywhere."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._writer = Writer()
        self._lock = threading.Lock()
        self._seconds = registry.histogram("telemetry_scrape_seconds").at()
        build = {"version": __version__, "python": platform.python_version()}
        registry.source("build_info", lambda: [(build, 1)])

    def begin(self, accept: str = "") -> Callable[[], tuple[str, bytes]]:
        """Read everything now; what is returned makes content type and body of it, on any thread.

        `accept` is the scraper's Accept header: OpenMetrics where it is accepted, else Prometheus
        text. Decided here and not by prometheus_client's own choice, which raises on a version it
        cannot read and repeats the client's words in the content type.
        """
        begun = self._clock.monotonic()
        openmetrics = "application/openmetrics-text" in accept
        readings = self._registry.read()

        def write() -> tuple[str, bytes]:
            with self._lock:  # pages are written in turn
                body = self._writer.page(readings, openmetrics=openmetrics)
                self._seconds.observe(self._clock.monotonic() - begun)
            return CONTENT_TYPE_LATEST if openmetrics else CONTENT_TYPE_PLAIN_0_0_4, body

        return write

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Both at once."""
        return self.begin(accept)()
