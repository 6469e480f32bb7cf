"""An engine that only plays: speaks the sidecar's protocol on a socket, and computes nothing."""

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes import tiny_card

from surgetank.engine.api import PROTOCOL, GenerateRequest, Hello, Started, StepOutput, Tokens
from surgetank.engine.wire import FrameReader, decode_commands, encode
from surgetank.telemetry.vocabulary import FinishReason


class PlayedEngine:
    """Answers at once, or while it `holds`, nobody. One connection after the other."""

    def __init__(self, socket: Path) -> None:
        self.holds = False
        self.served = 0
        self._socket = socket
        self._held: dict[int, GenerateRequest] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._up = threading.Event()
        self._stop = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._up.wait(10):
            raise RuntimeError(f"nothing listens on {self._socket}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def held(self) -> int:
        """Requests that wait for an answer."""
        return len(self._held)

    def release(self) -> None:
        """Answer those that are held."""
        self._loop.call_soon_threadsafe(self._answer_all)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._talk, str(self._socket))
        self._up.set()
        await self._stop.wait()
        server.close()
        if self._writer is not None:
            self._writer.close()
        await asyncio.sleep(0)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        self._writer = writer
        self._held.clear()
        writer.write(encode(Hello(PROTOCOL, tiny_card())))
        while data := await reader.read(65536):
            for body in frames.feed(data):
                commands = decode_commands(body)
                for request_id, _ in commands.cancel:
                    self._held.pop(request_id, None)
                self._held |= {request.request_id: request for request in commands.submit}
            if not self.holds:
                self._answer_all()
        writer.close()

    def _answer_all(self) -> None:
        requests, self._held = list(self._held.values()), {}
        if not requests or self._writer is None:
            return
        self.served += len(requests)
        tokens = [
            Tokens(each.request_id, 0, [65] * each.sampling.max_tokens, None, FinishReason.LENGTH)
            for each in requests
        ]
        started = [Started(each.request_id, 0) for each in requests]
        self._writer.write(encode(StepOutput(tokens, started, None)))
