"""Late binding: requests wait at the gate and go to an engine only when it has room for them."""

import logging
from collections.abc import Callable, Collection, Sequence
from itertools import chain, count
from math import inf
from typing import Protocol

from surgetank.admission import refusals
from surgetank.admission.expiry import Expiries
from surgetank.admission.fits import never_fits
from surgetank.admission.gate import Gate
from surgetank.admission.kv import blocks_for
from surgetank.admission.laws import Laws
from surgetank.admission.limits import LimitChange, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.pace import Pace
from surgetank.admission.queue import Queue
from surgetank.admission.routing.choice import Choice
from surgetank.admission.routing.moves import may_move
from surgetank.admission.routing.side import EngineSide, Why
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import MOVED, Ticket
from surgetank.admission.work import Work
from surgetank.engine.api import BackendDown
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import Outcome, QueueExit, Reason

log = logging.getLogger(__name__)


class TimerHandle(Protocol):
    """A timer that was set, as asyncio's loop.call_later returns it."""

    def cancel(self) -> None:
        """It shall not fire."""


class CallLater(Protocol):
    """Runs a callback after so many seconds of the same time that the clock tells."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> TimerHandle: ...


_PASSING = 32  # of those that wait, how many are looked at when the heads leave an engine free
_ENGINE_FAILED = frozenset(
    {Outcome.DEADLINE, Outcome.EVICTED, Outcome.BACKEND_DOWN, Outcome.INTERNAL}
)
_LEFT_QUEUE = {Outcome.EXPIRED: QueueExit.EXPIRED, Outcome.CANCELLED: QueueExit.CANCELLED}


class Dispatcher:
    """Holds all work between its admission and its end: in the queue, then in the engine.

    A timer ends what is late even while the engine stands still.
    """

    def __init__(
        self,
        *,
        sides: Sides,
        gate: Gate,
        laws: Laws,
        limits: Limits,
        queue: Queue,
        pace: Pace,
        recorder: Recorder,
        clock: Clock,
        call_later: CallLater,
        end: Callable[[Work, Refusal], None],
    ) -> None:
        self.calls: dict[Ticket, Work] = {}
        self._sides = sides
        self._choice = Choice(sides)
        self._gate = gate
        self._laws = laws
        self._limits = limits
        self._queue = queue
        self._pace = pace
        self._recorder = recorder
        self._clock = clock
        self._call_later = call_later
        self._end = end
        self._running: Expiries[Work] = Expiries()
        self._ids = count(1)
        self._pumping = False
        self._timer: TimerHandle | None = None
        self._fires_at = 0.0
        limits.on_change(self._limit_changed)

    def enqueue(self, call: Work) -> None:
        """Take an admitted call in; pump() then sends it on when there is room."""
        now, ticket = self._clock.monotonic(), call.ticket
        self.account(now)
        self.calls[ticket] = call
        self._queue.add(ticket, now)
        ticket.events.append((now, "queued"))
        self._recorder.enqueued(
            lane=ticket.lane, priority=ticket.priority, tokens=ticket.prompt_tokens
        )

    def leave(self, call: Work, outcome: Outcome) -> None:
        """An ended call gives back what it holds: its place in the queue, or its permit."""
        now, ticket = self._clock.monotonic(), call.ticket
        self.account(now)
        self.calls.pop(ticket, None)
        if self._queue.remove(ticket):
            self._tell_dequeued(ticket, now, _LEFT_QUEUE.get(outcome, QueueExit.SHED))
        elif call.permit is not None:
            self._give_back(call, outcome, ticket.reason)

    def move(self, call: Work, why: Refusal) -> bool:
        """Its engine was lost or does not take it, and its client has heard nothing. True: it waits
        again where it did, for another engine."""
        ticket, side = call.ticket, call.side
        if side is None or call.permit is None:
            return False
        if not may_move(ticket, why, self._sides.config):
            return False
        now, tried = self._clock.monotonic(), (*ticket.turned_away, side.name)
        self._sides.look(now)
        if not any(each.name not in tried for each in self._fitting(ticket)):
            return False
        self.account(now)
        self._let_go(call, why.outcome, why.reason)
        self._laws.moved(ticket, side)
        side.moved_away += 1
        ticket.turned_away, ticket.moved_at = tried, now
        ticket.dispatched_at, call.request_id = None, None
        ticket.happened(now, f"{MOVED} {side.name}: {why.message}")
        self._queue.restore(ticket, now)
        self._recorder.enqueued(
            lane=ticket.lane, priority=ticket.priority, tokens=ticket.prompt_tokens
        )
        return True

    def pump_for(self, ticket: Ticket) -> None:
        """A newcomer waits: the others were held back before it came, and still are. Before one
        engine it is looked at only when it is the next of its class; what changes their case pumps
        by itself."""
        if self._sides.one is None or self._queue.is_head(ticket):
            self.pump()
        else:
            self._arm()

    def pump(self) -> None:
        """Send to the engine what it has room for; an inner call leaves that to the outer one."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._dispatch_next():
                pass
        finally:
            self._pumping = False
        self._arm()

    def heard(self, call: Work) -> None:
        """Its first token came: a stream's read timeout counts no more."""
        if call.side is not None:
            self._laws.heard(call.ticket, call.side)
        if call.permit is not None and self._gate.enforces_deadlines:
            self._running.set(call, call.ticket.due)

    def outgrew(self, call: Work, tokens: int, new: int) -> None:
        """A choice has `tokens` tokens, `new` of them just now: more than it was promised."""
        ticket, card = call.ticket, None if call.side is None else call.side.card
        if card is not None and call.permit is not None:
            before = max(ticket.estimate.reserve, tokens - new)
            size, prompt = card.kv_block_size, ticket.prompt_tokens
            more = blocks_for(prompt, tokens, 1, size) - blocks_for(prompt, before, 1, size)
            call.permit.grow(more)

    def account(self, now: float) -> None:
        """Tell the estimator how the time since the last change was spent."""
        self._pace.pass_time(now, waiting=self._queue.requests, running=self._sides.whole.seqs)

    def _dispatch_next(self) -> bool:
        """One ticket off the queue; False when it is empty or must wait."""
        if not self._queue.requests:
            return False
        now = self._clock.monotonic()
        if not self._sides.look(now):
            return False
        heads = self._queue.heads()
        for ticket in heads:
            if self._ends_late(ticket, now) or self._goes(ticket, self._sides.open, now):
                return True
        return self._sides.one is None and self._passes(heads, now)

    def _passes(self, heads: Sequence[Ticket], now: float) -> bool:
        """Of several engines a head may wait for some alone. What stands behind it goes to another
        one, if that is of no use to any that stands before: so it keeps nobody waiting. Not to one
        that has just turned a request away: the whole queue would go by way of it."""
        sides, has_slot = self._sides.open, self._laws.room.has_slot
        free = {side for side in sides if has_slot(side) and not side.pushback.lasts(now)}
        for ticket in chain(heads, self._queue.in_turn(_PASSING)):
            if not free:
                break
            tried = ticket in heads
            if not tried and (self._ends_late(ticket, now) or self._goes(ticket, free, now)):
                return True
            free.difference_update(self._usable(ticket))
        return False

    def _ends_late(self, ticket: Ticket, now: float) -> bool:
        """Whether it came to its end: its client gave up, or it gives way to others."""
        if self._gate.enforces_deadlines and (due := ticket.due) is not None and due <= now:
            refusal = refusals.deadline_in_queue(ticket, now)
        elif self._gate.gives_way(ticket, now):
            refusal = refusals.gives_way(ticket, self._laws.target(ticket.priority), now)
        else:
            return False
        self._end(self.calls[ticket], refusal)
        return True

    def _goes(self, ticket: Ticket, sides: Collection[EngineSide], now: float) -> bool:
        """Whether one of those engines has room for it, and got it."""
        one, has_room = self._sides.one, self._gate.has_room
        if one is not None:
            if has_room(ticket, one, now):
                self._dispatch(self.calls[ticket], one, Why.ONLY, now)
                return True
            return False
        usable = (side for side in self._usable(ticket) if side in sides)
        roomy = [side for side in usable if has_room(ticket, side, now)]
        if roomy:
            self._dispatch(self.calls[ticket], *self._choice.pick(ticket, roomy, now), now)
        return bool(roomy)

    def _usable(self, ticket: Ticket) -> list[EngineSide]:
        """The engines that it may go to: those that have not turned it away, while there are."""
        fitting = self._fitting(ticket)
        return [side for side in fitting if side.name not in ticket.turned_away] or fitting

    def _fitting(self, ticket: Ticket) -> list[EngineSide]:
        """The engines that could ever hold it, of those that may get requests now."""
        return [
            side
            for side in self._sides.open
            if side.card is not None and never_fits(ticket, side.card, self._limits) is None
        ]

    def _dispatch(self, call: Work, side: EngineSide, why: Why, now: float) -> None:
        ticket = call.ticket
        self.account(now)
        self._queue.remove(ticket)
        self._tell_dequeued(ticket, now, QueueExit.DISPATCHED)
        ticket.dispatched_at, ticket.engine = now, side.name
        ticket.events.append((now, "dispatched"))
        side.routed[why] += 1
        call.side, call.permit = side, self._laws.dispatched(ticket, side, now)
        time_left = None
        if self._gate.enforces_deadlines:
            self._running.set(call, ticket.due)
            # A stream's read timeout ends with its first token: only the desk can watch that.
            until = ticket.deadline if ticket.stream else ticket.due
            time_left = None if until is None else until - now
        try:
            call.start(next(self._ids), time_left, side.at)
        except BackendDown as error:
            call.request_id = None
            refusal = refusals.backend_down(str(error))
            if not self.move(call, refusal):
                self._end(call, refusal)
        except Exception:  # a ticket must end, and what pumped must go on
            log.exception("a request could not be handed over", extra=ticket.log_fields)
            self._end(call, refusals.fault())

    def _give_back(self, call: Work, outcome: Outcome, reason: Reason) -> None:
        if call.side is None or call.permit is None:
            return
        self._laws.left(call.ticket, call.side, served=outcome is Outcome.OK)
        if outcome is Outcome.OK:
            self._pace.finished(call.permit.n, waiting=self._queue.requests)
        self._let_go(call, outcome, reason)

    def _let_go(self, call: Work, outcome: Outcome, reason: Reason) -> None:
        """Its engine has it no more, for that reason."""
        permit, call.permit = call.permit, None
        self._running.discard(call)
        if permit is None or call.side is None:
            return
        if outcome is Outcome.OK:
            permit.success()
        elif outcome in _ENGINE_FAILED:
            permit.dropped()
        else:
            permit.ignored()
        now = self._clock.monotonic()
        if self._sides.observe(call.side, call.ticket, outcome, reason, now):
            log.warning("engine %s is left out for a while: it failed again", call.side.name)
        if not call.finished:
            call.stop()

    def _tell_dequeued(self, ticket: Ticket, now: float, how: QueueExit) -> None:
        self._recorder.dequeued(
            lane=ticket.lane,
            priority=ticket.priority,
            tokens=ticket.prompt_tokens,
            wait=0.0 if (since := ticket.waits_since) is None else now - since,
            how=how,
        )

    def _limit_changed(self, change: LimitChange) -> None:
        up, down = change.after > change.before, change.after < change.before
        self._recorder.limit_changed(
            limit=change.name,
            direction="up" if up else "down" if down else "same",
            cause=change.cause,
        )
        self._end_late(self._clock.monotonic())
        self.pump()

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        self._limits.expire(now)
        self._end_late(now)
        self.pump()

    def _end_late(self, now: float) -> None:
        if not self._gate.enforces_deadlines:
            return
        longest = self._gate.longest_wait
        late = [
            (ticket, refusals.deadline_in_queue(ticket, now))
            for ticket in self._queue.past_deadline(now)
        ] + [
            (ticket, refusals.queue_timeout(ticket, longest, now))
            for ticket in self._queue.waited(longest, now)
        ]
        for ticket, refusal in late:
            if ticket in self._queue:  # the end of one may have ended or sent another
                self._end(self.calls[ticket], refusal)
        for call in self._running.pop_due(now):
            call.stop()  # first: what it has brought by now belongs to it
            self._end(call, refusals.deadline_in_decode(call.ticket, now))

    def _arm(self) -> None:
        """Set the timer for whatever expires first, unless it fires early enough already."""
        earliest = self._limits.next_expiry
        if self._sides.one is None:
            earliest = min(earliest, self._sides.next_return(self._clock.monotonic()))
        if self._gate.enforces_deadlines:
            given_up = self._queue.next_expiry(self._gate.longest_wait)
            earliest = min(earliest, given_up, self._running.next_at())
        if earliest == inf or (self._timer and self._fires_at <= earliest):
            return
        if self._timer:
            self._timer.cancel()
        # Not less than a millisecond: event loops may fire that much early.
        delay = max(0.001, earliest - self._clock.monotonic())
        self._fires_at = earliest
        self._timer = self._call_later(delay, self._on_timer)
