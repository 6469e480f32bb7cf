"""An engine of another maker, as far as HTTP shows it: it answers when the test lets it."""

import json
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT = 20.0  # seconds that anything may take before the test fails
PATIENCE = 120.0  # seconds that the engine waits to be let go
ANSWER = {
    "id": "a",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}


def event(text: str) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    chunk = {"id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return b"data: " + json.dumps({**chunk, "choices": [choice]}).encode() + b"\n\n"


@dataclass
class StubEngine:
    """What came, and when it may be answered."""

    port: int = 0
    free: threading.Event = field(default_factory=threading.Event)  # answers may go on
    gone: threading.Event = field(default_factory=threading.Event)  # somebody hung up first
    seen: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    status: int = 200
    dead: bool = False  # it hangs up on everybody
    slowness: float = 0.0  # seconds before it answers
    model: str = "m"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that resets its connection is a subject here; anything else is a fault."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def stub_engine() -> Iterator[StubEngine]:
    """Listens on a free port of the loopback; answers at once unless `free` is cleared."""
    engine = StubEngine()
    engine.free.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test says what matters."""

        def parse_request(self) -> bool:
            if engine.dead:
                self.close_connection = True
                return False
            return super().parse_request()

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                served = {"id": engine.model, "object": "model"}
                self._answer(200, {"object": "list", "data": [served]})
            else:
                self._answer(404, {})

        def do_POST(self) -> None:
            body = json.loads(self._body())
            headers = {name.lower(): value for name, value in self.headers.items()}
            engine.seen.append((headers, body))
            if body.get("stream"):
                self._stream()
            elif self._wait():
                self._answer(engine.status, ANSWER)

        def _body(self) -> bytes:
            if "content-length" in self.headers:
                return self.rfile.read(int(self.headers["content-length"]))
            parts: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self._chunk(event("hel"))
            if self._wait():
                self._chunk(event("lo"))
                self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()

        def _wait(self) -> bool:
            """True when the answer may go on; False when nobody waits for it any more."""
            engine.gone.wait(engine.slowness)
            for _ in range(int(PATIENCE / 0.01)):
                if engine.dead:
                    self.close_connection = True
                    return False
                if engine.free.wait(0.01):
                    return True
                readable, _, _ = select.select([self.connection], [], [], 0)
                if readable and not self._peek():
                    engine.gone.set()
                    self.close_connection = True
                    return False
            return False

        def _peek(self) -> bytes:
            try:
                peeked: bytes = self.connection.recv(1, socket.MSG_PEEK)
            except ConnectionError:
                return b""
            return peeked

        def _answer(self, status: int, fields: dict[str, Any]) -> None:
            data = json.dumps(fields).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = _Server(("127.0.0.1", 0), Handler)
    engine.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        engine.free.set()
        server.shutdown()
        server.server_close()
        thread.join(WAIT)
