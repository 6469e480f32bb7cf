"""A crowd of clients of every kind, in phases: calm, storm, calm again."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

PATIENCE = 120.0
_SYSTEM = "You answer in one short sentence. You never repeat the question. You are polite. " * 3
_TOPICS = ("rivers", "bridges", "clocks", "owls", "glass", "salt", "wind", "trains")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How one kind of client asks, and what it does when it is refused."""

    headers: Mapping[str, str] = field(default_factory=dict)
    prompt_repeats: int = 1  # of the common beginning
    max_tokens: int = 16
    model: str = "default"
    hangs_up: bool = False  # after the first token
    retries: int = 0
    obeys: bool = False  # waits as a refusal asks; else it returns at once
    tells: str = ""  # the header in which it tells its attempt
    pause: float = 0.5  # seconds between two questions


KINDS: dict[str, Client] = {
    "reader": Client(retries=2, obeys=True, tells="x-stainless-retry-count"),
    "hasty": Client(retries=3, tells="x-envoy-attempt-count", pause=0.05),
    "mute": Client(retries=2, pause=0.1),  # returns without saying that it was here before
    "batch": Client(
        headers={"x-surgetank-priority": "batch"}, prompt_repeats=6, max_tokens=32, pause=0.1
    ),
    "sheddable": Client(headers={"x-surgetank-priority": "sheddable"}, max_tokens=8),
    "leaver": Client(max_tokens=48, hangs_up=True),
    "hurried": Client(headers={"x-surgetank-timeout": "0.8"}, pause=0.5),
    "unclear": Client(headers={"x-surgetank-timeout": "soon"}, max_tokens=2, pause=6.0),
    "lost": Client(model="nobody", pause=6.0),
    "wrong": Client(max_tokens=-1, pause=6.0),
}
# Of the whole time, how long a phase lasts; how many clients of each kind there are in it.
CALM = {"reader": 3, "leaver": 1, "hurried": 1, "unclear": 1, "lost": 1, "wrong": 1}
STORM = {"reader": 8, "hasty": 6, "mute": 3, "batch": 4, "sheddable": 4, "leaver": 2, "hurried": 1}
Phases = tuple[tuple[float, dict[str, int]], ...]
_BEFORE = CALM | {"sheddable": 1}
THROUGH_A_STORM: Phases = ((0.3, _BEFORE), (0.35, CALM | STORM), (0.35, CALM))
INTO_A_STORM: Phases = ((0.45, _BEFORE), (0.55, CALM | STORM))


class Crowd:
    """Asks until its time is over; `answers` counts statuses."""

    def __init__(
        self, http: str, seconds: float, phases: Phases = THROUGH_A_STORM, seed: int = 1
    ) -> None:
        self._http = http
        self._seconds = seconds
        self._phases = phases
        self._rng = random.Random(seed)
        self._number = itertools.count()
        self.answers: Counter[int] = Counter()

    async def run(self) -> None:
        """All phases, one after the other; nobody is left in the middle of a question."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=self._http, timeout=PATIENCE, limits=limits) as http:
            for share, kinds in self._phases:
                over = asyncio.Event()
                async with asyncio.TaskGroup() as clients:
                    clients.create_task(self._bad_lines(over))
                    for kind, count in kinds.items():
                        for _ in range(count):
                            clients.create_task(self._ask_until(over, http, KINDS[kind]))
                    await self._wait(asyncio.Event(), share * self._seconds)
                    over.set()

    async def _ask_until(self, over: asyncio.Event, http: httpx.AsyncClient, who: Client) -> None:
        while not over.is_set():
            await self._ask(over, http, who)
            await self._wait(over, who.pause * self._rng.uniform(0.5, 1.5))

    async def _ask(self, over: asyncio.Event, http: httpx.AsyncClient, who: Client) -> None:
        topic = self._rng.choice(_TOPICS)
        body = {
            "model": who.model,
            "prompt": f"{_SYSTEM * who.prompt_repeats}{next(self._number)}. Tell me of {topic}.",
            "max_tokens": who.max_tokens,
            "stream": True,
            "ignore_eos": True,
        }
        for attempt in range(1 + who.retries):
            headers = dict(who.headers)
            if attempt and who.tells:
                headers[who.tells] = str(attempt + (who.tells == "x-envoy-attempt-count"))
            advised = await self._attempt(http, who, body, headers)
            if advised is None or over.is_set():
                return
            await self._wait(asyncio.Event() if who.obeys else over, advised if who.obeys else 0.2)

    async def _attempt(
        self, http: httpx.AsyncClient, who: Client, body: object, headers: dict[str, str]
    ) -> float | None:
        """The seconds after which to come back; None when there is no reason to."""
        async with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            self.answers[answer.status_code] += 1
            if answer.headers.get("x-should-retry") == "false" and who.obeys:
                return None
            if answer.status_code in (429, 503):
                return float(answer.headers.get("retry-after-ms", "1000")) / 1000
            async for _ in answer.aiter_lines():
                if who.hangs_up:
                    break
        return None

    async def _bad_lines(self, over: asyncio.Event) -> None:
        """Somebody who speaks no HTTP."""
        url = httpx.URL(self._http)
        while not over.is_set():
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(b"hello?\r\n\r\n")
            await reader.read()
            writer.close()
            await writer.wait_closed()
            await self._wait(over, 1.0)

    async def _wait(self, over: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):  # the time is over, and nobody called it off
            await asyncio.wait_for(over.wait(), seconds)
