"""A look into the desk for whoever explains it: what a request met, and what keeps the next out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from surgetank.admission.laws import Laws
from surgetank.admission.queue import Queue
from surgetank.admission.room import Held
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import Found, Ticket
from surgetank.admission.wait import Wait
from surgetank.admission.work import Work
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Outcome, Priority

JUST_NOW = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a request would meet if it came now. Seconds."""

    wait: Wait | None  # W; None while it cannot be predicted
    threshold: float  # the W above which it would be refused


class Peek:
    """Changes nothing outside. All methods belong to the event loop's thread."""

    def __init__(
        self,
        calls: Mapping[Ticket, Work],
        queue: Queue,
        sides: Sides,
        laws: Laws,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._queue = queue
        self._sides = sides
        self._laws = laws
        self._clock = clock
        self._newest: Ticket | None = None
        self._refused: Ticket | None = None  # for load, the newest before that

    def found(self, ticket: Ticket, now: float) -> Found:
        """The desk as an arriving request finds it."""
        self._refused, self._newest = self._turned_away(), ticket
        return Found(
            queued=self._queue.requests,
            tokens=self._queue.tokens,
            ahead=self._queue.choices_ahead(ticket.priority),
            running=self._sides.whole.seqs,
            kv=self._sides.whole.kv_blocks / (self._sides.kv_usable or math.inf),
            threshold=self._laws.threshold(ticket, now).seconds,
        )

    def live(self) -> list[Ticket]:
        """Everybody between admission and end, in order of admission."""
        return list(self._calls)

    def held(self) -> Held | None:
        """What keeps the next request out of the engines: the first of the queue's; when nobody
        waits, one like the last that was refused for load just now, or else an average one. None:
        nothing does, or there is no engine."""
        now = self._clock.monotonic()
        if not self._sides.look(now):
            return None
        heads, refused = self._queue.heads(), self._turned_away()
        if heads:
            following = heads[0]
        elif refused is not None and now - refused.arrived <= JUST_NOW:
            following = refused
        else:
            following = self._laws.average(now)
        return self._laws.held(following, now)

    def _turned_away(self) -> Ticket | None:
        overloaded = self._newest is not None and self._newest.outcome is Outcome.OVERLOAD
        return self._newest if overloaded else self._refused

    def what_if(self, ticket: Ticket, priority: Priority) -> WhatIf | None:
        """The same request once more, now, in that class; None without an engine."""
        now = self._clock.monotonic()
        if not self._sides.look(now):
            return None
        again = replace(ticket, arrived=now, priority=priority, deadline=None, queued_at=None)
        wait = self._laws.wait(again, now)
        return WhatIf(wait, self._laws.threshold(again, now).seconds)
