"""A look into the desk for whoever explains it: what a request met, and what keeps the next out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from surgetank.admission.call import Call
from surgetank.admission.laws import Held, Laws
from surgetank.admission.permit import Ledger
from surgetank.admission.queue import Queue
from surgetank.admission.ticket import Found, Ticket
from surgetank.admission.wait import Wait
from surgetank.engine.api import Backend, ModelCard
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.vocabulary import Priority


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a request would meet if it came now. Seconds."""

    wait: Wait | None  # W; None while it cannot be predicted
    threshold: float  # the W above which it would be refused


class Peek:
    """Changes nothing. All methods belong to the event loop's thread."""

    def __init__(
        self,
        calls: Mapping[Ticket, Call],
        queue: Queue,
        ledger: Ledger,
        laws: Laws,
        backend: Backend,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._queue = queue
        self._ledger = ledger
        self._laws = laws
        self._backend = backend
        self._clock = clock

    def found(self, ticket: Ticket, card: ModelCard, now: float) -> Found:
        """The desk as an arriving request finds it."""
        return Found(
            queued=self._queue.requests,
            tokens=self._queue.tokens,
            ahead=self._queue.choices_ahead(ticket.priority),
            running=self._ledger.seqs,
            kv=self._ledger.kv_blocks / card.kv_blocks,
            threshold=self._laws.threshold(ticket, now).seconds,
        )

    def live(self) -> list[Ticket]:
        """Everybody between admission and end, in order of admission."""
        return list(self._calls)

    def held(self) -> Held | None:
        """What keeps the next request out of the engine: the first of the queue's, or an average
        one when nobody waits. None: nothing does, or there is no engine."""
        card = self._backend.card
        if card is None:
            return None
        now = self._clock.monotonic()
        heads = self._queue.heads()
        return self._laws.held(heads[0] if heads else self._laws.average(now), card, now)

    def what_if(self, ticket: Ticket, priority: Priority) -> WhatIf | None:
        """The same request once more, now, in that class; None without an engine."""
        card = self._backend.card
        if card is None:
            return None
        now = self._clock.monotonic()
        again = replace(ticket, arrived=now, priority=priority, deadline=None, queued_at=None)
        wait = self._laws.wait(again, card, now, self._backend.stalled_for(now))
        return WhatIf(wait, self._laws.threshold(again, now).seconds)
