"""An OpenAI server that only plays: answers with words at once, counts, and refuses as told."""

import asyncio
import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

BUSY = ("429 Too Many Requests", {"retry-after-ms": "60", "x-surgetank-reason": "predicted_wait"})
AWAY = ("429 Too Many Requests", {"x-should-retry": "false", "x-surgetank-reason": "retry_budget"})
Refusal = tuple[str, dict[str, str]]


class PlayedOpenAI:
    """Two tokens a word and five of its own. In a thread, with a loop of its own."""

    def __init__(self, *, counts: bool = True, takes: tuple[str, ...] = ("ignore_eos",)) -> None:
        self.refusals: list[Refusal] = []  # given to the next streams, one each
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.gone = 0  # connections that their clients have left
        self.on_stream: Callable[[int], None] = lambda number: None
        self._counts = counts
        self._known = {"model", "prompt", "messages", "max_tokens", "temperature", "stream"}
        self._known |= {"stream_options", *takes}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._up = threading.Event()
        self._stop = asyncio.Event()
        self._port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._up.wait(10):
            raise RuntimeError("the played server does not listen")
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
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def streams(self) -> list[dict[str, Any]]:
        """What was asked to be streamed."""
        return [body for body in self.bodies if body.get("stream")]

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._up.set()
        await self._stop.wait()
        server.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # the connections are closed in the loop's next round

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].partition("\r")[0] or 0)
                body = json.loads(await reader.readexactly(length)) if length else {}
                writer.write(self._answer(head, body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionResetError):
            self.gone += 1
        finally:
            writer.close()

    def _answer(self, head: str, body: dict[str, Any]) -> bytes:
        if head.startswith("get /v1/models "):
            return _page("200 OK", {"data": [{"id": "played"}]})
        if unknown := set(body) - self._known:
            return _page("400 Bad Request", {"error": {"message": f"unknown: {sorted(unknown)}"}})
        self.bodies.append(body)
        self.heads.append(head)
        chat = "messages" in body
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        counted = {"prompt_tokens": 5 + 2 * len(prompt.split())}
        usage = {**counted, "completion_tokens": body["max_tokens"]} if self._counts else None
        if not body.get("stream"):
            return _page("200 OK", {"choices": [{"text": "w"}], "usage": usage})
        self.on_stream(len(self.streams))
        if self.refusals:
            status, headers = self.refusals.pop(0)
            return _page(status, {"error": {"message": "busy"}}, headers)
        return _stream(body["max_tokens"], usage, chat)


def _page(status: str, document: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
    data = json.dumps(document).encode()
    said = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + data


def _stream(tokens: int, usage: dict[str, int] | None, chat: bool) -> bytes:
    def event(choices: list[dict[str, Any]], **more: Any) -> str:
        said = {"id": "1", "object": "x", "created": 1, "model": "played", "choices": choices}
        return f"data: {json.dumps(said | more)}\n\n"

    def piece(text: str) -> dict[str, Any]:
        return {"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}

    parts = [event([piece("")])] if chat else []
    parts += [event([piece(" w")]) for _ in range(tokens)]
    parts += [event([], usage=usage)] if usage else []
    data = "".join([*parts, "data: [DONE]\n\n"]).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
