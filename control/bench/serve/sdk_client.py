"""openai's own client in a run: its retry loop, its obedience, its timeouts."""

import asyncio
from typing import Any

import openai

from surgetank.control.bench.load.attempts import begin
from surgetank.control.bench.load.sdk import sdk
from surgetank.control.bench.serve.clients import Server, count
from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.rows import Answer

SDK_RETRIES = 2  # openai's own default


class Sdk:
    """openai's client with its own retry loop."""

    def __init__(self, kind: type[openai.AsyncOpenAI], server: Server, timeout: float) -> None:
        self._server = server
        self._client = sdk(
            kind, server.base_url, retries=SDK_RETRIES, timeout=timeout, api_key=server.api_key
        )

    async def ask(self, call: Call, prompt: str) -> Answer:
        """Streamed."""
        answer = Answer(attempts=begin())
        now = asyncio.get_running_loop().time
        make: Any = self._client.chat.completions if self._server.chat else self._client.completions
        try:
            stream = await make.create(
                **self._server.fields(prompt, call.output),
                extra_body=self._server.more(call.output),
            )
            async for chunk in stream:
                if chunk.choices and _text(chunk.choices[0], self._server.chat):
                    answer.times.append(now())
                if chunk.usage is not None:
                    count(answer, chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        except Exception as problem:  # of openai, or of its HTTP client: the caller's last word
            answer.error = type(problem).__name__
        return answer

    async def close(self) -> None:
        await self._client.close()


def _text(choice: Any, chat: bool) -> bool:
    if not chat:
        return bool(choice.text)
    delta = choice.delta
    return bool(delta.content or getattr(delta, "reasoning_content", None))
