"""The sidecar's side of the link, blocking and plain, for tests of the engine's side."""

import socket
from pathlib import Path
from typing import Self

from surgetank.engine.api import (
    Commands,
    GenerateRequest,
    Hello,
    SamplingParams,
    StepOutput,
    Tokens,
)
from surgetank.engine.wire import FrameReader, decode_from_engine, encode


class SocketClient:
    """Connects at once; every read gives up after `timeout` seconds."""

    def __init__(self, path: Path, timeout: float = 20.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self._reader = FrameReader()
        self._bodies: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def read(self) -> Hello | StepOutput | None:
        """The next message; None when the engine closed the connection."""
        while not self._bodies:
            data = self.socket.recv(65536)
            if not data:
                return None
            self._bodies += self._reader.feed(data)
        return decode_from_engine(self._bodies.pop(0))

    def hello(self) -> Hello:
        message = self.read()
        if not isinstance(message, Hello):
            raise TypeError(f"expected Hello, got {message!r}")
        return message

    def send(self, commands: Commands) -> None:
        self.socket.sendall(encode(commands))

    def submit(self, request_id: int, prompt: list[int], sampling: SamplingParams) -> None:
        request = GenerateRequest(request_id=request_id, prompt=prompt, sampling=sampling)
        self.send(Commands(submit=[request]))

    def until_finish(self, request_id: int) -> list[Tokens]:
        """All that comes for a request, up to its finish."""
        heard: list[Tokens] = []
        while not heard or heard[-1].finish is None:
            message = self.read()
            if not isinstance(message, StepOutput):
                raise ConnectionError("the engine closed the connection")
            heard += [tokens for tokens in message.tokens if tokens.request_id == request_id]
        return heard

    def closed(self) -> bool:
        """Whether the engine closes the connection, whatever it still had to say before."""
        try:
            while self.read() is not None:
                continue
        except ConnectionResetError:
            return True
        return True
