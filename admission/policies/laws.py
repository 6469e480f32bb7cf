"""Policy `laws`, the default: memory, predicted wait, queue, retry budget, in engine-seconds."""

from surgetank.admission import refusals
from surgetank.admission.kv import LOW_CLASSES
from surgetank.admission.limits import Limit
from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.places import Places
from surgetank.admission.policies.policy import Admission, Plugin
from surgetank.admission.policies.screen import Screen
from surgetank.admission.policies.site import Site
from surgetank.admission.ticket import Ticket
from surgetank.admission.wait import Wait
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Lane, Outcome, Reason


class LawsPolicy:
    """The laws' answers as yes or no. It learns nothing by itself: the estimators do."""

    def __init__(self, site: Site) -> None:
        self._limits = site.limits
        self._queue = site.queue
        self._pace = site.pace
        self._laws = site.laws
        self._budget = site.budget
        self._screen = Screen(site)
        self._places = Places(site.limits, site.queue)

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        """The first that refuses does: the screen, memory, wait, queue, retry budget."""
        refusal = self._screen.refuses(ticket, now) or self._memory(ticket)
        if refusal is not None:
            return refusal
        wait = self._laws.wait(ticket, now)
        refusal = self._wait(ticket, wait, now)
        if refusal is not None:
            return refusal
        displaced = self._places.find(ticket)
        if isinstance(displaced, Refusal):
            return displaced
        paid = ticket.lane is Lane.RETRY and self._contended(ticket, now, wait)
        if paid and (refusal := self._unpaid(ticket, now)) is not None:
            return refusal
        return Admission(displaced, wait, paid)

    def ended(self, ticket: Ticket, now: float) -> None:
        """Nothing to learn."""

    def _memory(self, ticket: Ticket) -> Refusal | None:
        used = self._laws.kv_pressure()
        if used is None or ticket.priority not in LOW_CLASSES:
            return None
        limit = self._limits.get(Limit.KV_RESERVE_LOW)
        name = Limit.KV_RESERVE_LOW
        return refusals.over(Outcome.OVERLOAD, Reason.KV_PRESSURE, used, limit, name)

    def _wait(self, ticket: Ticket, wait: Wait | None, now: float) -> Refusal | None:
        """The dynamic threshold; before W is known, or while it cannot be trusted and few wait,
        only a deadline that the queue breaks."""
        if wait is None:
            return self._slow_queue(ticket, now)
        allowed = self._laws.threshold(ticket, now, contended=wait.slot > 0.0)
        if wait.seconds <= allowed.seconds or (self._laws.unsure and not allowed.by_deadline):
            return None
        return refusals.long_wait(
            wait.seconds, allowed.seconds, by_deadline=allowed.by_deadline, binding=wait.binding
        )

    def _slow_queue(self, ticket: Ticket, now: float) -> Refusal | None:
        left = ticket.time_left(now)
        wait = self._pace.predicted_wait(self._queue.choices_ahead(ticket.priority))
        if left is None or wait is None or wait + self._pace.shortest_step < left:
            return None
        return refusals.long_wait(wait, left, by_deadline=True, binding="slot")

    def _contended(self, ticket: Ticket, now: float, wait: Wait | None) -> bool:
        """Whether somebody would have to wait for this retry: the budget rations contention, and a
        retry that finds an idle engine takes nothing from anybody."""
        idle = not self._queue.requests and self._laws.free(ticket, now)
        return not idle or (wait is not None and wait.age > 0.0)

    def _unpaid(self, ticket: Ticket, now: float) -> Refusal | None:
        outcome, reason = Outcome.RETRY_BUDGET, Reason.RETRY_BUDGET
        cost = ticket.estimate.seconds
        if not (share := self._limits.get(Limit.RETRY_SHARE)):
            return refusals.over(outcome, reason, cost, share, Limit.RETRY_SHARE)
        short = self._budget.short_of(ticket.tenant, cost, now, promised=ticket.promised)
        if short is None:
            return None
        left = self._budget.left(ticket.tenant, now, promised=ticket.promised)
        return refusals.over(outcome, reason, cost, left, f"retry_budget_{short}")


laws = Plugin(LawsPolicy, "predicted wait against the dynamic threshold, in engine-seconds", True)
