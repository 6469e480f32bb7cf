"""Fair order among the tenants of one class: a virtual counter each, the lowest goes first.

A tenant's counter is the engine-seconds it was served. Work is charged when it is dispatched, by
its estimate, and corrected when it ends: a request that stops early gets the rest back. So two
tenants that both wait differ in service by at most two requests' cost, however many either of them
sends (the virtual token counter of Sheng et al., "Fairness in serving large language models", OSDI
2024, with engine-seconds for tokens).

A tenant that was idle goes on where it was, but not below the lowest counter of those who wait by
more than CREDIT, nor above it by more than DEBT. Without the credit, whoever keeps a long queue has
every turn in which the others' short queues, which the wait threshold keeps short, happen to be
empty: nine tenants that asked for 1.5 times their share got .9 of it and a hog twice its own.
Both add at most themselves to the difference between two tenants.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain, count, takewhile

from surgetank.admission.ticket import Ticket

CREDIT = 0.5  # engine-seconds
DEBT = 0.1
_KEEP = 4096  # counters of idle tenants


class FairOrder:
    """The waiting tickets of one class. next() is O(1) amortised, the rest O(log tenants)."""

    def __init__(self) -> None:
        self._lines: dict[str, OrderedDict[Ticket, None]] = {}  # those who wait, each in order
        self._counters: OrderedDict[str, float] = OrderedDict()
        self._heap: list[tuple[float, int, str]] = []
        self._order = count()
        self._level = 0.0  # the counter of the last one served

    @property
    def tenants(self) -> int:
        """How many of them wait."""
        return len(self._lines)

    def waits(self, tenant: str) -> bool:
        """Whether one of them has a ticket here."""
        return tenant in self._lines

    def turn(self, tenant: str, own: float, cost: float) -> float:
        """Engine-seconds that are served before a newcomer of that cost, whose tenant has `own`
        waiting: its own, and of each other tenant at most until the counters are level."""
        self._drop_stale()
        others = len(self._lines) - (tenant in self._lines)
        if not self._heap:
            return own
        lowest = self._heap[0][0]
        mine = self._counters[tenant] if tenant in self._lines else self._restart(tenant)
        return own + others * max(0.0, mine + own + cost - lowest)

    def add(self, ticket: Ticket) -> None:
        """Behind its tenant's others."""
        tenant = ticket.tenant
        line = self._lines.get(tenant)
        if line is None:
            self._return_of(tenant)
            line = self._lines[tenant] = OrderedDict()
            self._push(tenant)
        line[ticket] = None

    def put_back(self, ticket: Ticket) -> None:
        """One that is here goes before those of its tenant's that were queued later."""
        put_back(self._lines[ticket.tenant], ticket)

    def remove(self, ticket: Ticket) -> None:
        """Take it out, wherever it stands; KeyError when it is not here."""
        line = self._lines[ticket.tenant]
        del line[ticket]
        if not line:
            del self._lines[ticket.tenant]

    def next(self) -> Ticket | None:
        """The first ticket of the tenant that was served least; None when nobody waits."""
        self._drop_stale()
        return next(iter(self._lines[self._heap[0][2]])) if self._heap else None

    def in_turn(self, most: int) -> Iterator[Ticket]:
        """Those who wait: the tenant that was served least first, with all its own. O(tenants)."""
        tenants = heapq.nsmallest(most, self._lines, key=self._counters.__getitem__)
        return chain.from_iterable(self._lines[tenant] for tenant in tenants)

    def charge(self, tenant: str, seconds: float) -> None:
        """Work of that tenant was dispatched; negative: it was less than had been charged."""
        before = self._counters.get(tenant, self._level)
        if seconds > 0.0:
            self._level = max(self._level, before)
        self._counters[tenant] = before + seconds
        self._counters.move_to_end(tenant)
        if tenant in self._lines:
            self._push(tenant)
        self._forget()

    def _return_of(self, tenant: str) -> None:
        self._counters[tenant] = self._restart(tenant)
        self._counters.move_to_end(tenant)
        self._forget()

    def _restart(self, tenant: str) -> float:
        self._drop_stale()
        lowest = self._heap[0][0] if self._heap else self._level
        counter = self._counters.get(tenant, lowest)
        return min(lowest + DEBT, max(lowest - CREDIT, counter))

    def _push(self, tenant: str) -> None:
        heapq.heappush(self._heap, (self._counters[tenant], next(self._order), tenant))
        if len(self._heap) > 2 * len(self._lines) + 64:
            self._heap = [(self._counters[each], next(self._order), each) for each in self._lines]
            heapq.heapify(self._heap)

    def _drop_stale(self) -> None:
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)

    def _stale(self, entry: tuple[float, int, str]) -> bool:
        return entry[2] not in self._lines or self._counters[entry[2]] != entry[0]

    def _forget(self) -> None:
        """Idle tenants beyond the bound, longest unseen first: they begin anew when they return."""
        while len(self._counters) > _KEEP + len(self._lines) + 1:
            idle = next(each for each in self._counters if each not in self._lines)
            del self._counters[idle]


def put_back(line: OrderedDict[Ticket, None], ticket: Ticket) -> None:
    """The last of a line that is in order of `queued_at` goes where it belongs: O(those before)."""
    since = ticket.queued_at or 0.0
    before = list(takewhile(lambda each: (each.queued_at or 0.0) < since, line))
    line.move_to_end(ticket, last=False)
    for each in reversed(before):
        line.move_to_end(each, last=False)
