"""The load process: makes the calls it is told of, in real time, and watches its own lateness.

Run as `python -m surgetank.control.bench.scenarios.load`; speaks as wire.py says on stdin and
stdout, and ends with stdin.
"""

import asyncio
import random
import sys
from collections.abc import Iterator

import msgspec

from surgetank.control.bench.load.watch import Watch
from surgetank.control.bench.load.words import prompt_of
from surgetank.control.bench.scenarios.clients import Clients
from surgetank.control.bench.scenarios.plan import Call
from surgetank.control.bench.scenarios.rows import Row
from surgetank.control.bench.scenarios.wire import Answer, Begun, Play, Played, Ready, Setup

_HEAD_START = 0.1  # seconds from Begun to the first moment of a play
_LINE = 64 * 1024 * 1024  # bytes, at most


class Player:
    """Plays calls with prompts of its own words."""

    def __init__(self, clients: Clients, setup: Setup) -> None:
        self._clients = clients
        self._setup = setup
        self._rng = random.Random(setup.seed)
        self._loop = asyncio.get_running_loop()

    async def play(self, order: Play) -> Played:
        """Make the calls; returns when all have ended."""
        watch = Watch()
        origin = self._loop.time() + _HEAD_START
        say(Begun(origin))
        if order.width:
            rows = await self._in_turn(order, origin)
        else:
            rows = await self._on_time(order.calls, origin, watch)
        return Played(rows, await watch.stop())

    async def _on_time(self, calls: list[Call], origin: float, watch: Watch) -> list[Row]:
        """Each at its time, whatever becomes of the others."""
        prompts = [self._prompt(call) for call in calls]
        tasks = []
        for call, prompt in zip(calls, prompts):
            await asyncio.sleep(origin + call.at - self._loop.time())
            watch.left(self._loop.time() - origin - call.at)
            made = self._clients.call(call, prompt, origin)
            tasks.append(self._loop.create_task(made))
        return list(await asyncio.gather(*tasks))

    async def _in_turn(self, order: Play, origin: float) -> list[Row]:
        """`width` callers that never pause; the rows are those of the first calls, in order."""
        rows: dict[int, Row] = {}
        left = iter(enumerate(order.calls))
        until = origin + order.seconds

        async def caller(todo: Iterator[tuple[int, Call]]) -> None:
            while self._loop.time() < until and (each := next(todo, None)) is not None:
                number, call = each
                rows[number] = await self._clients.call(call, self._prompt(call), origin)

        await asyncio.sleep(origin - self._loop.time())
        await asyncio.gather(*(caller(left) for _ in range(order.width)))
        return [rows[number] for number in sorted(rows)]

    def _prompt(self, call: Call) -> str:
        return prompt_of(call.prompt, self._setup.tokens_per_word, self._rng)


def say(answer: Answer) -> None:
    """One line to the bench."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


async def main() -> None:
    """Setup, then play after play."""
    reader = asyncio.StreamReader(limit=_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    first = await reader.readline()
    if not first:
        return
    setup = msgspec.json.decode(first, type=Setup)
    clients = Clients(setup)
    try:
        player = Player(clients, setup)
        say(Ready())
        while line := await reader.readline():
            say(await player.play(msgspec.json.decode(line, type=Play)))
    finally:
        await clients.close()


if __name__ == "__main__":
    asyncio.run(main())
