"""Late binding: requests wait at the gate and go to the engine only when it has room for them."""

import logging
from collections.abc import Callable
from itertools import count
from typing import Protocol

from surgetank.admission import refusals
from surgetank.admission.expiry import Expiries
from surgetank.admission.gate import Gate
from surgetank.admission.kv import blocks_for
from surgetank.admission.laws import Laws
from surgetank.admission.limits import LimitChange, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.pace import Pace
from surgetank.admission.permit import Ledger
from surgetank.admission.queue import Queue
from surgetank.admission.ticket import Ticket
from surgetank.admission.work import Work
from surgetank.engine.api import BackendDown, Engine, ModelCard
from surgetank.telemetry.clock import Clock
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import Outcome, QueueExit

log = logging.getLogger(__name__)


class TimerHandle(Protocol):
    """A timer that was set, as asyncio's loop.call_later returns it."""

    def cancel(self) -> None:
        """It shall not fire."""


class CallLater(Protocol):
    """Runs a callback after so many seconds of the same time that the clock tells."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> TimerHandle: ...


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
        engine: Engine,
        gate: Gate,
        laws: Laws,
        limits: Limits,
        queue: Queue,
        ledger: Ledger,
        pace: Pace,
        recorder: Recorder,
        clock: Clock,
        call_later: CallLater,
        end: Callable[[Work, Refusal], None],
    ) -> None:
        self.calls: dict[Ticket, Work] = {}
        self._engine = engine
        self._gate = gate
        self._laws = laws
        self._limits = limits
        self._queue = queue
        self._ledger = ledger
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
            self._give_back(call, outcome)

    def pump_for(self, ticket: Ticket) -> None:
        """A newcomer waits: the others were held back before it came, and still are. It is looked
        at only when it is the next of its class; what changes their case pumps by itself."""
        if self._queue.is_head(ticket):
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
        self._laws.heard(call.ticket)
        if call.permit is not None and self._gate.enforces_deadlines:
            self._running.set(call, call.ticket.due)

    def outgrew(self, call: Work, tokens: int, new: int) -> None:
        """A choice has `tokens` tokens, `new` of them just now: more than it was promised."""
        card, ticket = self._engine.card, call.ticket
        if card is not None and call.permit is not None:
            before = max(ticket.estimate.reserve, tokens - new)
            size, prompt = card.kv_block_size, ticket.prompt_tokens
            more = blocks_for(prompt, tokens, 1, size) - blocks_for(prompt, before, 1, size)
            call.permit.grow(more)

    def account(self, now: float) -> None:
        """Tell the estimator how the time since the last change was spent."""
        self._pace.pass_time(now, waiting=self._queue.requests, running=self._ledger.seqs)

    def _dispatch_next(self) -> bool:
        """One ticket off the queue; False when it is empty or must wait."""
        card = self._engine.card
        if card is None or not self._queue.requests:
            return False
        now = self._clock.monotonic()
        for ticket in self._queue.heads():
            call = self.calls[ticket]
            if self._gate.enforces_deadlines and (due := ticket.due) is not None and due <= now:
                self._end(call, refusals.deadline_in_queue(ticket, now))
                return True
            if self._gate.gives_way(ticket, now):
                target = self._laws.target(ticket.priority)
                self._end(call, refusals.target_missed(ticket, target, now))
                return True
            if self._gate.has_room(ticket, card, now):
                self._dispatch(call, card, now)
                return True
        return False

    def _dispatch(self, call: Work, card: ModelCard, now: float) -> None:
        ticket = call.ticket
        self.account(now)
        self._queue.remove(ticket)
        self._tell_dequeued(ticket, now, QueueExit.DISPATCHED)
        ticket.dispatched_at = now
        ticket.events.append((now, "dispatched"))
        call.permit = self._laws.dispatched(ticket, card, now)
        time_left = None
        if self._gate.enforces_deadlines:
            self._running.set(call, ticket.due)
            # A stream's read timeout ends with its first token: only the desk can watch that.
            until = ticket.deadline if ticket.stream else ticket.due
            time_left = None if until is None else until - now
        try:
            call.start(next(self._ids), time_left)
        except BackendDown as error:
            call.request_id = None
            self._end(call, refusals.backend_down(str(error)))
        except Exception:  # a ticket must end, and what pumped must go on
            log.exception("a request could not be handed over", extra=ticket.log_fields)
            self._end(call, refusals.fault())

    def _give_back(self, call: Work, outcome: Outcome) -> None:
        permit, call.permit = call.permit, None
        self._running.discard(call)
        if permit is None:
            return
        self._laws.left(call.ticket, served=outcome is Outcome.OK)
        if outcome is Outcome.OK:
            self._pace.finished(permit.n, waiting=self._queue.requests)
            permit.success()
        elif outcome in _ENGINE_FAILED:
            permit.dropped()
        else:
            permit.ignored()
        if not call.finished:
            call.stop()

    def _tell_dequeued(self, ticket: Ticket, now: float, how: QueueExit) -> None:
        self._recorder.dequeued(
            lane=ticket.lane,
            priority=ticket.priority,
            tokens=ticket.prompt_tokens,
            wait=0.0 if ticket.queued_at is None else now - ticket.queued_at,
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
        for ticket in self._queue.past_deadline(now):
            self._end(self.calls[ticket], refusals.deadline_in_queue(ticket, now))
        longest = self._gate.longest_wait
        for ticket in self._queue.waited(longest, now):
            self._end(self.calls[ticket], refusals.queue_timeout(ticket, longest, now))
        for call in self._running.pop_due(now):
            self._end(call, refusals.deadline_in_decode(call.ticket, now))

    def _arm(self) -> None:
        """Set the timer for whatever expires first, unless it fires early enough already."""
        instants: list[float | None] = [self._limits.next_expiry]
        if self._gate.enforces_deadlines:
            instants.append(self._queue.next_expiry(self._gate.longest_wait))
            instants.append(self._running.next_at())
        earliest = min(at for at in instants if at is not None)
        if earliest == float("inf") or (self._timer and self._fires_at <= earliest):
            return
        if self._timer:
            self._timer.cancel()
        # Not less than a millisecond: event loops may fire that much early.
        delay = max(0.001, earliest - self._clock.monotonic())
        self._fires_at = earliest
        self._timer = self._call_later(delay, self._on_timer)
