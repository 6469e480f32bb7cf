"""The bench's end of the load process: starts it, hands it plays, and ends it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.scenarios.wire import Answer, Begun, Play, Played, Ready, Setup

AnswerT = TypeVar("AnswerT", Ready, Begun, Played)
_START_TIMEOUT, _STOP_TIMEOUT = 60.0, 10.0  # seconds
_DRAIN = 120.0  # seconds after a play's last arrival, at most
_LINE = 64 * 1024 * 1024  # bytes, at most


class Crew:
    """The load process, ready."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def play(
        self, order: Play, meanwhile: Callable[[float], Awaitable[None]] | None = None
    ) -> Played:
        """Have it played to its end. `meanwhile` gets the play's origin (monotonic) and runs beside
        it. Raises BenchError when the process dies or falls silent."""
        await self._say(order)
        begun = await self._hear(Begun, _START_TIMEOUT)
        last = max((call.at for call in order.calls), default=0.0)
        beside = None if meanwhile is None else asyncio.ensure_future(meanwhile(begun.origin))
        try:
            played = await self._hear(Played, max(last, order.seconds) + _DRAIN)
            if beside is not None:
                await beside
        finally:
            if beside is not None:
                beside.cancel()
                await asyncio.gather(beside, return_exceptions=True)
        return played

    async def _say(self, order: Setup | Play) -> None:
        if self._process.stdin is None:
            raise BenchError("the load process has no input")
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        await self._process.stdin.drain()

    async def _hear(self, kind: type[AnswerT], seconds: float) -> AnswerT:
        if self._process.stdout is None:
            raise BenchError("the load process has no output")
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        except TimeoutError:
            raise BenchError(f"the load process said nothing for {seconds:.0f} s") from None
        if not line:
            raise BenchError("the load process ended; what it said stands above")
        answer: Answer = msgspec.json.decode(line, type=Answer)
        if not isinstance(answer, kind):
            raise BenchError(f"the load process said {type(answer).__name__}, not {kind.__name__}")
        return answer


@asynccontextmanager
async def crew(setup: Setup) -> AsyncIterator[Crew]:
    """A load process with its clients ready; ended on leaving, whatever happened."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "surgetank.control.bench.scenarios.load"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=_LINE,
    )
    try:
        found = Crew(process)
        await found._say(setup)
        await found._hear(Ready, _START_TIMEOUT)
        yield found
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT)
        except TimeoutError:
            process.kill()
            await process.wait()
