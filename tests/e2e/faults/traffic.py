"""Clients of a running product: each sends one request after the other, from a thread of its own.

A crowd is as fast as it is answered, so that the same crowd is the same load on any machine.
"""

import asyncio
import itertools
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

AT_ONCE = 0.02  # seconds until the next try of a client that does not wait as told
RETRY_HEADER = "x-stainless-retry-count"
_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How each client of a crowd behaves. Seconds and tokens."""

    prompt: int = 40
    output: int = 60
    patience: float = 120.0
    tries: int = 1
    obeys: bool = True  # waits as told after a refusal
    pause: float = 0.0  # between an answer and the next question
    fields: dict[str, Any] = field(default_factory=dict)


class Crowd:
    """So many clients from entering until leaving; `codes` counts their answers, 0 is given up."""

    def __init__(self, url: str, clients: int, habits: Habits) -> None:
        self._url = f"{url}/v1/completions"
        self._clients = clients
        self._habits = habits
        self.codes: Counter[int] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join(60.0)
        assert not self._thread.is_alive(), "the clients did not go home"

    def behave(self, habits: Habits) -> None:
        """From the next question on."""
        self._habits = habits

    def _run(self) -> None:
        self._all = self._loop.create_task(self._everybody())
        try:
            self._loop.run_until_complete(self._all)
        except asyncio.CancelledError:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _everybody(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._clients)
        async with (
            httpx.AsyncClient(limits=limits) as http,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(self._clients):
                group.create_task(self._one(http, random.Random(next(_numbers))))

    async def _one(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        while True:
            await self._ask(http, rng)
            await asyncio.sleep(self._habits.pause)

    async def _ask(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        """One question, until it is answered or the client has tried often enough."""
        habits = self._habits
        body = {
            "model": "default",
            "prompt": "".join(rng.choices("abcdefgijkmnopqrstuvwxyz", k=habits.prompt)),
            "max_tokens": habits.output,
            "ignore_eos": True,
            **habits.fields,
        }
        for attempt in range(habits.tries):
            headers = {RETRY_HEADER: str(attempt)}
            try:
                answer = await http.post(
                    self._url, json=body, headers=headers, timeout=habits.patience
                )
            except httpx.TransportError:
                self.codes[0] += 1
                await asyncio.sleep(AT_ONCE)
                continue
            self.codes[answer.status_code] += 1
            if answer.status_code < 400:
                return
            told = int(answer.headers.get("retry-after-ms", 1000)) / 1000
            await asyncio.sleep(told if habits.obeys else AT_ONCE)
