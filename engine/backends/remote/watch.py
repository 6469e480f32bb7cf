"""Watches one engine: finds it, looks at it again and again, and finds it anew when it was lost.

A look comes every second, and at once when a connection to the engine broke: a process that was
killed takes its connections along, and the next look is refused. Whoever refuses connections takes
no more requests, but may complete what it has, as servers do that are told to stop; when nothing is
left in it, it is gone. Whoever only fails to answer is gone after MISSES looks: it may be too busy.
"""

import asyncio
from contextlib import suppress
from typing import Protocol

from surgetank.engine.backends.remote.found import Found, Look, NobodyListens, NotFound, Signals
from surgetank.engine.backends.remote.identity import Identity
from surgetank.telemetry.clock import Clock

MISSES = 3  # looks without an answer after which an engine counts as gone
_APART = 0.05  # seconds between two looks, however much breaks


class Probe(Protocol):
    """Asks the engine about itself; discovery.Discovery or grpc_engine.GrpcEngine."""

    async def find(self) -> Found:
        """What is there. Raises NotFound."""

    async def look(self, found: Found) -> Look:
        """What it tells now. Raises NotFound when it does not answer."""

    async def aclose(self) -> None:
        """Close what it holds open."""


class Watched(Protocol):
    """Whoever wants to know of the engine, and knows what goes on in it."""

    @property
    def heard_at(self) -> float:
        """When anything last came from it."""

    @property
    def busy(self) -> bool:
        """Whether an answer may still come by a connection to it."""

    @property
    def refuses(self) -> bool:
        """Whether it was said to refuse connections, and not to be there again."""

    def come(self, found: Found) -> None:
        """It is there."""

    def renewed(self, found: Found, why: str) -> None:
        """It is another process than it was, and serves the same."""

    def told(self, signals: Signals) -> None:
        """What a look brought."""

    def refused(self, why: str) -> None:
        """It takes no more requests."""

    def gone(self, why: str) -> None:
        """It is not there any more; nothing happens where it was not."""

    def complain(self, what: str, *, fault: bool = False) -> None:
        """What is wrong; `fault`: an exception is being handled that nobody expected."""


class Watch:
    """Runs in a task of its own, for ever."""

    def __init__(self, probe: Probe, watched: Watched, clock: Clock, every: float) -> None:
        """`every`: seconds between two looks."""
        self._probe = probe
        self._watched = watched
        self._clock = clock
        self._every = every
        self._doubt = asyncio.Event()

    def doubt(self) -> None:
        """Something spoke against it: look at once."""
        self._doubt.set()

    async def run(self) -> None:
        """Ends only when cancelled."""
        while True:
            try:
                found = await self._probe.find()
                self._watched.come(found)
                self._watched.gone(await self._follow(found))
            except NotFound as error:
                self._watched.complain(str(error))
            except Exception as error:  # whatever it says, it is looked for again
                self._watched.gone(what := f"it cannot be followed: {error!r}")
                self._watched.complain(what, fault=True)
            await self._pause()

    async def _follow(self, found: Found) -> str:
        """Look until nothing answers any more, or what does serves another model; returns why."""
        model, identity, misses, doubted, why = found.card.name, Identity(), 0, False, ""
        looked_at = self._clock.monotonic()
        while True:
            try:
                look = await self._probe.look(found)
            except NobodyListens as error:
                self._watched.refused(str(error))
                if not self._watched.busy:
                    return str(error)
            except NotFound as error:
                doubted = True
                misses = 0 if self._watched.heard_at > looked_at else misses + 1
                if misses >= MISSES:
                    return str(error)
            else:
                misses = 0
                self._watched.told(look.signals)
                if look.models is not None and model not in look.models:
                    return f"it serves {', '.join(look.models) or 'no model'} now, not {model}"
                why = identity.changed(look) or why or self._listens_again()
                now = await self._find_again() if doubted or why else found
                doubted = now is None
                if now is not None and model not in now.models:
                    return f"it was started anew, without {model}"
                if now is not None and why:
                    self._watched.renewed(now, why)
                    found, why = now, ""
            looked_at = self._clock.monotonic()
            await self._pause()

    def _listens_again(self) -> str:
        return "it listens again" if self._watched.refuses else ""

    async def _find_again(self) -> Found | None:
        """After a look that it did not answer, or that made it look another; None: it is too busy
        to say."""
        try:
            return await self._probe.find()
        except NotFound:
            return None

    async def _pause(self) -> None:
        """Until the next look; it begins at once when there is doubt."""
        await asyncio.sleep(min(_APART, self._every))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._every - _APART)):
                await self._doubt.wait()
        self._doubt.clear()
