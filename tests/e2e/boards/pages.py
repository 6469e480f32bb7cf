"""Serves /metrics pages on loopback: recorded ones of other engines, and ours as a twin."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

RECORDED = Path(__file__).parents[2] / "dashboards" / "data"
_GROWS = re.compile(r"^(\S+(?:_total|_bucket|_count|_sum)(?:\{.*\})?) (\S+)$", re.MULTILINE)


@contextmanager
def served(page: Callable[[], str]) -> Iterator[str]:
    """The URL under which each GET is answered by a fresh page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = page().encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):  # a scrape that waited no longer
                self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not worth a line."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def scaled(text: str, factor: float) -> str:
    """The page of a process that has done `factor` times as much: counters grow, gauges stay."""
    return _GROWS.sub(lambda line: f"{line[1]} {float(line[2]) * factor:g}", text)


class Growing:
    """A recorded page whose counters are once more as high at each scrape."""

    def __init__(self, name: str) -> None:
        self._text = (RECORDED / f"{name}.txt").read_text("utf-8")
        self._scrapes = 0

    def __call__(self) -> str:
        self._scrapes += 1
        return scaled(self._text, self._scrapes)


class Twin:
    """The page of a live process as a second replica would give it, with three times the work."""

    FACTOR = 3
    MODEL = "twin"

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self) -> str:
        with urlopen(f"{self._url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        named = re.sub(r'model="[^"]*"', f'model="{self.MODEL}"', text)
        return scaled(named, self.FACTOR)
