"""The gate: admits a request to the queue or refuses it, by the limits and the laws.

It reads no clock, starts no task and learns nothing: it asks the estimators. So the same code
decides in real time and in virtual time.
"""

import math
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from surgetank.admission import refusals
from surgetank.admission.fits import never_fits, never_queued
from surgetank.admission.kv import LOW_CLASSES
from surgetank.admission.laws import Laws
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import SPECS, Limit, Limits, limit_field
from surgetank.admission.outcome import Refusal
from surgetank.admission.pace import Pace
from surgetank.admission.queue import Queue
from surgetank.admission.ration import Ration
from surgetank.admission.retry_budget import RetryBudget
from surgetank.admission.ticket import Ticket
from surgetank.admission.wait import Wait
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, Reason

_LOW_PLACES = 0.75  # of the queue, the most that batch and sheddable may fill


class GateConfig(BaseModel):
    """What the gate starts with; each limit can be changed while it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enforce: bool = Field(
        default=True,
        description="false opens the gate wide: an unbounded queue, and no deadlines.",
    )
    queue_requests: int = limit_field(Limit.QUEUE_REQUESTS)
    queue_tokens: int = limit_field(Limit.QUEUE_TOKENS)
    queue_wait: float = limit_field(Limit.QUEUE_WAIT)
    in_flight_seqs: int = limit_field(Limit.IN_FLIGHT_SEQS)
    kv_reserve: float = limit_field(Limit.KV_RESERVE)
    kv_reserve_low: float = limit_field(Limit.KV_RESERVE_LOW)
    max_n: int = limit_field(Limit.MAX_N)
    max_output_tokens: int = limit_field(Limit.MAX_OUTPUT_TOKENS)
    kappa: float = limit_field(Limit.KAPPA)
    retry_share: float = limit_field(Limit.RETRY_SHARE)
    laws: LawsConfig = Field(default_factory=LawsConfig)

    def base_limits(self) -> dict[Limit, float]:
        """The configured value of every limit that is configured here."""
        ours = type(self).model_fields
        return {name: float(getattr(self, name)) for name in SPECS if name in ours}


@dataclass(frozen=True, slots=True)
class Admission:
    """Yes, and whom it costs their place in the queue (sheddable requests only)."""

    displaced: tuple[Ticket, ...] = ()
    wait: Wait | None = None  # as predicted; None while it cannot be
    paid: bool = False  # a retry that the budget has to pay for


class Gate:
    """Decides on tickets; changes neither queue nor ledger nor budget."""

    def __init__(
        self,
        *,
        config: GateConfig,
        limits: Limits,
        queue: Queue,
        pace: Pace,
        laws: Laws,
        budget: RetryBudget,
    ) -> None:
        self._enforce = config.enforce
        self._retry_wait = config.laws.retry_wait_share
        self._limits = limits
        self._queue = queue
        self._pace = pace
        self._laws = laws
        self._budget = budget
        self._rations = {True: Ration(), False: Ration()}  # for sheddable, and for all

    @property
    def enforces_deadlines(self) -> bool:
        """False while the gate is configured wide open."""
        return self._enforce

    @property
    def longest_wait(self) -> float:
        """Seconds that a request may spend in the queue."""
        return self._limits.get(Limit.QUEUE_WAIT) if self._enforce else math.inf

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None = 0.0
    ) -> Admission | Refusal:
        """The first that refuses does: what never fits, classes held back, memory, wait, queue,
        retry budget. `stalled_for`: the engine's silence, as its backend tells it."""
        refusal = never_fits(ticket, card, self._limits)
        if refusal is not None:
            return refusal
        if not self._enforce:
            return Admission()
        refusal = (
            never_queued(ticket, self._limits)
            or self._too_slow(ticket, now)
            or self._held_back(ticket)
            or self._memory(ticket, card)
        )
        if refusal is not None:
            return refusal
        wait = self._laws.wait(ticket, card, now, stalled_for)
        refusal = self._wait(ticket, wait, now)
        if refusal is not None:
            return refusal
        displaced = self._in_queue(ticket)
        if isinstance(displaced, Refusal):
            return displaced
        paid = ticket.lane is Lane.RETRY and self._contended(ticket, card, now, wait)
        if paid and (refusal := self._unpaid(ticket, now)) is not None:
            return refusal
        return Admission(displaced, wait, paid)

    def has_room(self, ticket: Ticket, card: ModelCard, now: float) -> bool:
        """Whether the ticket may go to the engine now."""
        if self._enforce and not self._laws.prefill_free(ticket.priority):
            return False
        return self._laws.slots_free(ticket, card, now)

    def gives_way(self, ticket: Ticket, now: float) -> bool:
        """The check at dequeue: what has missed its target gives way, where another that waits can
        still meet it. Admission keeps waits below the target, so this is for what it could not
        foresee; without it one stall makes everybody late, each because of the one before."""
        if not self._enforce or not self._laws.missed(ticket, now):
            return False
        newest = next(self._queue.newest(ticket.priority))
        return not self._laws.missed(newest, now)

    def _too_slow(self, ticket: Ticket, now: float) -> Refusal | None:
        left, least = ticket.time_left(now), self._laws.least(ticket)
        return refusals.too_slow(least, left) if left is not None and left <= least else None

    def _held_back(self, ticket: Ticket) -> Refusal | None:
        """Brown-out and recovery: classes, and shares of them."""
        outcome, reason = Outcome.OVERLOAD, Reason.BROWN_OUT
        lowest = self._limits.get(Limit.LOWEST_CLASS)
        if ticket.priority > lowest:
            return refusals.over(outcome, reason, ticket.priority, lowest, Limit.LOWEST_CLASS)
        if ticket.priority is Priority.CRITICAL:
            return None
        for sheddable, name in (
            (True, Limit.SHEDDABLE_SHARE),
            (False, Limit.ADMISSION_SHARE),
        ):
            share = self._limits.get(name)
            concerned = not sheddable or ticket.priority is Priority.SHEDDABLE
            if concerned and not self._rations[sheddable].passes(share):
                return refusals.over(outcome, reason, 1.0, share, name)
        return None

    def _memory(self, ticket: Ticket, card: ModelCard) -> Refusal | None:
        used = self._laws.kv_pressure(card)
        if used is None or ticket.priority not in LOW_CLASSES:
            return None
        limit = self._limits.get(Limit.KV_RESERVE_LOW)
        name = Limit.KV_RESERVE_LOW
        return refusals.over(Outcome.OVERLOAD, Reason.KV_PRESSURE, used, limit, name)

    def _wait(self, ticket: Ticket, wait: Wait | None, now: float) -> Refusal | None:
        """The dynamic threshold; before W is known, only a deadline that the queue breaks."""
        if wait is None:
            return self._slow_queue(ticket, now)
        allowed = self._laws.threshold(ticket, now, contended=wait.slot > 0.0)
        limit = allowed.seconds * (self._retry_wait if ticket.lane is Lane.RETRY else 1.0)
        if wait.seconds <= limit:
            return None
        return refusals.long_wait(
            wait.seconds, limit, by_deadline=allowed.by_deadline, binding=wait.binding
        )

    def _slow_queue(self, ticket: Ticket, now: float) -> Refusal | None:
        left = ticket.time_left(now)
        wait = self._pace.predicted_wait(self._queue.choices_ahead(ticket.priority))
        if left is None or wait is None or wait + self._pace.shortest_step < left:
            return None
        return refusals.long_wait(wait, left, by_deadline=True, binding="slot")

    def _contended(self, ticket: Ticket, card: ModelCard, now: float, wait: Wait | None) -> bool:
        """Whether somebody would have to wait for this retry: the budget rations contention, and a
        retry that finds an idle engine takes nothing from anybody."""
        idle = not self._queue.requests and self.has_room(ticket, card, now)
        return not idle or (wait is not None and wait.age > 0.0)

    def _unpaid(self, ticket: Ticket, now: float) -> Refusal | None:
        outcome, reason = Outcome.RETRY_BUDGET, Reason.RETRY_BUDGET
        cost = ticket.estimate.seconds
        if not (share := self._limits.get(Limit.RETRY_SHARE)):
            return refusals.over(outcome, reason, cost, share, Limit.RETRY_SHARE)
        short = self._budget.short_of(ticket.tenant, cost, now, promised=ticket.promised)
        if short is None:
            return None
        balance = self._budget.balance(now)
        return refusals.over(outcome, reason, cost, balance, f"retry_budget_{short}")

    def _in_queue(self, ticket: Ticket) -> tuple[Ticket, ...] | Refusal:
        """Whom the newcomer displaces, mostly nobody. Low classes leave a quarter of the places to
        the others, whom they would otherwise keep out without waiting for anything themselves."""
        requests = self._queue.requests + ticket.n
        tokens = self._queue.tokens + ticket.prompt_tokens
        share = _LOW_PLACES if ticket.priority in LOW_CLASSES else 1.0
        most_requests = math.ceil(share * self._limits.get(Limit.QUEUE_REQUESTS))
        most_tokens = math.ceil(share * self._limits.get(Limit.QUEUE_TOKENS))
        over_requests, over_tokens = requests - most_requests, tokens - most_tokens
        if over_requests <= 0 and over_tokens <= 0:
            return ()
        if displaced := self._displace(ticket, over_requests, over_tokens):
            return displaced
        outcome = Outcome.OVERLOAD
        if over_requests > 0:
            name, reason = Limit.QUEUE_REQUESTS, Reason.QUEUE_REQUESTS
            return refusals.over(outcome, reason, requests, most_requests, name)
        name, reason = Limit.QUEUE_TOKENS, Reason.QUEUE_TOKENS
        return refusals.over(outcome, reason, tokens, most_tokens, name)

    def _displace(self, ticket: Ticket, requests: float, tokens: float) -> tuple[Ticket, ...]:
        """The newest sheddable requests whose leaving makes room; none unless they suffice."""
        shed_requests, shed_tokens = self._queue.held_by(Priority.SHEDDABLE)
        suffices = shed_requests >= requests and shed_tokens >= tokens
        if ticket.priority is Priority.SHEDDABLE or not suffices:
            return ()
        victims: list[Ticket] = []
        for victim in self._queue.newest(Priority.SHEDDABLE):
            if requests <= 0 and tokens <= 0:
                break
            victims.append(victim)
            requests -= victim.n
            tokens -= victim.prompt_tokens
        return tuple(victims)
