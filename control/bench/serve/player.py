"""Plays the calls: each at its time, or a fixed number of callers that never pause."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from surgetank.control.bench.load.watch import Strain, Watch
from surgetank.control.bench.serve.clients import Client
from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.rows import Row
from surgetank.control.bench.serve.texts import Writer

_HEAD_START = 0.05  # seconds from the beginning to the first call's time


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it. `begun` and `ended` by the loop's clock."""

    rows: list[Row]
    begun: float
    ended: float
    strain: Strain
    cut: int  # calls that were under way when the run was stopped


class Player:
    """One run. stop() ends it early; what has ended until then is kept."""

    def __init__(self, clients: Mapping[str, Client], writer: Writer, rng: random.Random) -> None:
        self._clients = clients
        self._writer = writer
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._rows: list[Row] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._watch = Watch()

    def stop(self) -> None:
        """Send no more, and give up what is under way."""
        if self._running is not None:
            self._running.cancel()

    async def play(
        self, calls: Iterator[Call], width: int | None, duration: float | None
    ) -> Played:
        """Open loop without a width; with one, so many callers, the last call begun before
        `duration` (seconds) is over. Returns when all have ended, or soon after stop()."""
        begun = self._loop.time() + _HEAD_START
        if width:
            made = self._in_turn(calls, width, begun, duration)
        else:
            made = self._on_time(calls, begun)
        self._running = self._loop.create_task(made)
        with contextlib.suppress(asyncio.CancelledError):
            await self._running
        under_way = [task for task in self._tasks if not task.done()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        ended, strain = self._loop.time(), await self._watch.stop()
        return Played(self._rows, begun, ended, strain, len(under_way))

    async def _on_time(self, calls: Iterator[Call], begun: float) -> None:
        """Whatever becomes of the others. A call that leaves late counts from its time all the
        same, so a slow generator or server hides nothing (coordinated omission)."""
        for call in calls:
            prompt = self._prompt(call)  # before its time, not at it
            await asyncio.sleep(begun + call.at - self._loop.time())
            self._begin(self._one(call, prompt, begun + call.at))
        await asyncio.gather(*self._tasks)

    async def _in_turn(
        self, calls: Iterator[Call], width: int, begun: float, duration: float | None
    ) -> None:
        async def caller() -> None:
            while duration is None or self._loop.time() < begun + duration:
                call = next(calls, None)
                if call is None:
                    return
                await self._one(call, self._prompt(call), self._loop.time())

        await asyncio.sleep(begun - self._loop.time())
        for _ in range(width):
            self._begin(caller())
        await asyncio.gather(*self._tasks)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, call: Call, prompt: str, due: float) -> None:
        left = self._loop.time()
        self._watch.left(left - due)
        answer = await self._clients[call.client].ask(call, prompt)
        self._rows.append(Row(call, due, left, self._loop.time(), answer))

    def _prompt(self, call: Call) -> str:
        return self._writer.prompt(call.prompt, self._rng)
