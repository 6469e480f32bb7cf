"""The gate's queue: classes by priority, tenants fairly inside each, counted as it goes."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf

from surgetank.admission.cost import Estimate
from surgetank.admission.expiry import Expiries
from surgetank.admission.fair import FairOrder, put_back
from surgetank.admission.line import Line, Work
from surgetank.admission.served import ServedRates
from surgetank.admission.shares import FloorShares
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.vocabulary import Lane, Priority

_NOTHING = Work()


@dataclass(frozen=True, slots=True)
class QueueLevel:
    """What waits in one class. A request of n choices counts n."""

    priority: Priority
    requests: dict[Lane, int]
    tokens: int  # prompt tokens
    oldest_age: float | None  # seconds; None when nothing waits


@dataclass(slots=True)
class _Class:
    """One class's waiting tickets, oldest first, and their sums."""

    waiting: OrderedDict[Ticket, None] = field(default_factory=OrderedDict)
    order: FairOrder = field(default_factory=FairOrder)
    requests: dict[Lane, int] = field(default_factory=lambda: dict.fromkeys(Lane, 0))
    choices: int = 0  # of both lanes
    work: Work = field(default_factory=Work)
    tenants: dict[str, Work] = field(default_factory=dict)
    served: ServedRates = field(default_factory=ServedRates)
    oldest: float | None = None  # when its first ticket was queued

    def count(self, ticket: Ticket, sign: int) -> None:
        """Add a ticket to the sums, or take it out; the oldest is read anew."""
        self.requests[ticket.lane] += sign * ticket.n
        self.choices += sign * ticket.n
        own = self.tenants.get(ticket.tenant)
        if own is None:
            own = self.tenants[ticket.tenant] = Work()
        for work in (self.work, own):
            work.seconds += sign * ticket.estimate.seconds
            work.tokens += sign * ticket.prompt_tokens
        if not self.order.waits(ticket.tenant):
            del self.tenants[ticket.tenant]
        if not self.waiting:
            self.work = Work()  # no rounding error outlives the queue
        self.oldest = next(iter(self.waiting)).queued_at if self.waiting else None

    def turns(self, ticket: Ticket) -> int:
        """Tenants that take turns once the ticket waits here."""
        return self.order.tenants + (0 if self.order.waits(ticket.tenant) else 1)


class Queue:
    """Tickets that wait for the engine. Bounds are the gate's business, not the queue's.

    add and remove are O(log n), the sums O(1). levels() may be called from any thread, everything
    else from one.
    """

    def __init__(self, floor_share: float = 0.0) -> None:
        """`floor_share`: what each lower class is sure of, see shares.py."""
        self._classes = {priority: _Class() for priority in Priority}
        self._above = {
            priority: [held for other, held in self._classes.items() if other < priority]
            for priority in Priority
        }
        self._shares = FloorShares(floor_share)
        self._deadlines: Expiries[Ticket] = Expiries()
        self.requests = 0  # one of n choices counts n
        self.tokens = 0  # prompt tokens

    def __len__(self) -> int:
        return sum(len(held.waiting) for held in self._classes.values())

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._classes[ticket.priority].waiting

    def held_by(self, priority: Priority) -> tuple[int, int]:
        """Requests and prompt tokens of one class."""
        held = self._classes[priority]
        return held.choices, held.work.tokens

    def choices_ahead(self, priority: Priority) -> int:
        """Requests of that class and those above it; n choices count n."""
        if not self.requests:
            return 0
        classes = (*self._above[priority], self._classes[priority])
        return sum([held.choices for held in classes])

    def above_rate(self, priority: Priority, now: float) -> float:
        """Engine-seconds per second that the classes above were served lately."""
        rate = 0.0
        for held in self._above[priority]:
            rate += held.served.total(now)
        return rate

    def due(self, ticket: Ticket) -> bool:
        """Whether its class has earned it by its floor share."""
        return self._shares.due(ticket.priority, ticket.estimate.seconds)

    def line(self, ticket: Ticket, now: float) -> Line:
        """What a newcomer would find ahead of it."""
        if not self.requests:
            return Line(_NOTHING, self.above_rate(ticket.priority, now), _NOTHING, 0.0, 1, 0.0)
        held = self._classes[ticket.priority]
        own, tenants = held.tenants.get(ticket.tenant, _NOTHING), held.turns(ticket)
        seconds, tokens = 0.0, 0
        for above in self._above[ticket.priority]:
            seconds += above.work.seconds
            tokens += above.work.tokens
        return Line(
            above=Work(seconds, tokens),
            above_rate=self.above_rate(ticket.priority, now),
            peers=held.work,
            peers_rate=held.served.others(ticket.tenant, now),
            tenants=tenants,
            turns=held.order.turn(ticket.tenant, own.seconds, ticket.estimate.seconds),
        )

    def add(self, ticket: Ticket, now: float) -> None:
        """Behind the others of its class."""
        ticket.queued_at = now
        held = self._classes[ticket.priority]
        held.waiting[ticket] = None
        held.order.add(ticket)
        held.count(ticket, +1)
        self.requests += ticket.n
        self.tokens += ticket.prompt_tokens
        if (due := ticket.due) is not None:
            self._deadlines.set(ticket, due)

    def restore(self, ticket: Ticket, now: float) -> None:
        """One that was taken out before goes where it was: before the others of its class and
        tenant that came later. It has waited since it first came."""
        since = ticket.queued_at
        self.add(ticket, now)
        held = self._classes[ticket.priority]
        ticket.queued_at = since
        put_back(held.waiting, ticket)
        held.order.put_back(ticket)
        held.oldest = next(iter(held.waiting)).queued_at

    def remove(self, ticket: Ticket) -> bool:
        """Take it out, wherever it stands; False when it does not wait here."""
        held = self._classes[ticket.priority]
        if ticket not in held.waiting:
            return False
        del held.waiting[ticket]
        held.order.remove(ticket)
        held.count(ticket, -1)
        self.requests -= ticket.n
        self.tokens -= ticket.prompt_tokens
        self._deadlines.discard(ticket)
        return True

    def heads(self) -> list[Ticket]:
        """Who may be dispatched next, in this order: a class that is due its floor share, then the
        highest class. Inside a class it is the tenant's turn that was served least."""
        heads: list[Ticket] = []
        for priority, held in self._classes.items():
            ticket = held.order.next()
            if ticket is None:
                continue
            if not heads:
                heads.append(ticket)
            elif self._shares.due(priority, ticket.estimate.seconds):
                return [ticket, heads[0]]
        return heads

    def in_turn(self, most: int) -> Iterator[Ticket]:
        """The first of all who wait, heads among them: the highest class first, inside a class the
        tenants in their turn, each with all its own. Ends with the next change of the queue."""
        turns = (held.order.in_turn(most) for held in self._classes.values())
        yield from islice(chain.from_iterable(turns), most)

    def is_head(self, ticket: Ticket) -> bool:
        """Whether it is the next of its class."""
        return self._classes[ticket.priority].order.next() is ticket

    def reprice(self, price: Callable[[Ticket], Estimate]) -> None:
        """Estimate everything that waits anew: O(n), for when what was known has changed."""
        for held in self._classes.values():
            for ticket in held.waiting:
                held.count(ticket, -1)
                ticket.estimate = price(ticket)
                held.count(ticket, +1)

    def served(self, ticket: Ticket, now: float) -> None:
        """It was dispatched: charge its tenant and its class. It waits no more."""
        seconds, held = ticket.estimate.seconds, self._classes[ticket.priority]
        held.order.charge(ticket.tenant, seconds)
        held.served.add(ticket.tenant, seconds, now)
        if self.requests:
            self._shares.served(ticket.priority, seconds, self._waits)
        else:
            self._shares.forfeit()

    def corrected(self, ticket: Ticket, seconds: float) -> None:
        """A dispatched request cost that much more (less: negative) than it was charged."""
        self._classes[ticket.priority].order.charge(ticket.tenant, seconds)

    def _waits(self, priority: Priority) -> bool:
        return bool(self._classes[priority].waiting)

    def newest(self, priority: Priority) -> Iterator[Ticket]:
        """One class, last come first: the order in which it is displaced."""
        return reversed(self._classes[priority].waiting)

    def past_deadline(self, now: float) -> list[Ticket]:
        """Those whose client has given up by now, each told once; they still stand here."""
        return self._deadlines.pop_due(now)

    def waited(self, longest: float, now: float) -> list[Ticket]:
        """Those that waited `longest` seconds or more; they still stand here."""
        stale = []
        for held in self._classes.values():
            for ticket in held.waiting:
                if (ticket.queued_at or 0.0) + longest > now:
                    break
                stale.append(ticket)
        return stale

    def next_expiry(self, longest: float) -> float:
        """When the next ticket gives up, by its own deadline or after `longest` seconds; infinite
        when none does."""
        if not self.requests:
            return inf
        soonest = self._deadlines.next_at()
        for held in self._classes.values():
            if held.oldest is not None and held.oldest + longest < soonest:
                soonest = held.oldest + longest
        return soonest

    def levels(self, now: float) -> tuple[QueueLevel, ...]:
        """Every class, empty ones too."""
        return tuple(
            QueueLevel(
                priority=priority,
                requests=dict(held.requests),
                tokens=held.work.tokens,
                oldest_age=None if (oldest := held.oldest) is None else now - oldest,
            )
            for priority, held in self._classes.items()
        )
