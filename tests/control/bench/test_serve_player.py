"""Open loop waits for nobody; closed loop keeps its width; a stop keeps what has ended."""

import asyncio
import random
from collections.abc import Sequence

from surgetank.control.bench.serve.inputs import Call
from surgetank.control.bench.serve.player import Played, Player
from surgetank.control.bench.serve.rows import Answer, Row
from surgetank.control.bench.serve.texts import ByRatio, Line


class Held:
    """Answers when so many calls are with it at once."""

    def __init__(self, together: int) -> None:
        self.prompts: list[str] = []
        self.most = 0
        self._together = together
        self._inside = 0
        self._enough = asyncio.Event()
        self.crowded = asyncio.Event()  # two calls at once

    async def ask(self, call: Call, prompt: str) -> Answer:
        self.prompts.append(prompt)
        self._inside += 1
        self.most = max(self.most, self._inside)
        if self._inside == 2:
            self.crowded.set()
        if self._inside >= self._together:
            self._enough.set()
        await self._enough.wait()
        self._inside -= 1
        return Answer([asyncio.get_running_loop().time()])

    async def close(self) -> None:
        self._enough.set()


TIMES = [0.0, 0.01, 0.02]


def by_due(row: Row) -> float:
    return row.due


def calls(*times: float) -> Sequence[Call]:
    return [Call(at, 10, 1, "held") for at in times]


def player(client: Held) -> Player:
    return Player({"held": client}, ByRatio(Line(0.0, 1.0)), random.Random(1))


async def play(client: Held, played: Sequence[Call], width: int | None) -> Played:
    async with asyncio.timeout(10):
        return await player(client).play(iter(played), width, None)


async def test_an_open_loop_sends_whatever_comes_back() -> None:
    client = Held(together=3)
    found = await play(client, calls(*TIMES), None)
    assert len(found.rows) == 3
    assert [round(row.due - found.begun, 6) for row in sorted(found.rows, key=by_due)] == TIMES
    assert all(row.left >= row.due - 0.002 for row in found.rows)
    assert [len(prompt.split()) for prompt in client.prompts] == [10, 10, 10]
    assert found.cut == 0


async def test_a_closed_loop_keeps_its_width() -> None:
    client = Held(together=2)
    found = await play(client, calls(*[0.0] * 7), 2)
    assert (len(found.rows), client.most) == (7, 2)
    assert all(row.due <= row.left for row in found.rows)


async def test_a_closed_loop_begins_nothing_after_its_time() -> None:
    async with asyncio.timeout(10):
        found = await player(Held(together=1)).play(iter(calls(0.0)), 1, 0.0)
    assert found.rows == []


async def test_a_stop_keeps_what_has_ended() -> None:
    client = Held(together=99)
    made = player(client)
    running = asyncio.create_task(made.play(iter(calls(0.0, 0.0, 500.0)), None, None))
    async with asyncio.timeout(10):
        await client.crowded.wait()
        made.stop()
        found = await running
    assert (found.rows, found.cut) == ([], 2)
