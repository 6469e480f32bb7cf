"""Retries, from recognising one to telling its client when the next may come."""

import math
import random

from msgspec.structs import replace

from surgetank.admission.attempts import RETRIED, Attempts, Failure
from surgetank.admission.hints import OVERBOOKED, Hints
from surgetank.admission.laws import Laws
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import STATUS, Advice, Refusal
from surgetank.admission.retry_budget import RetryBudget
from surgetank.admission.ticket import Ticket
from surgetank.admission.work import Demand
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import Lane, Outcome, Reason

FINGERPRINT = "fingerprint"


class Retries:
    """Keeps what failed, the budget and the slots in step with each other."""

    def __init__(
        self,
        *,
        rng: random.Random,
        recorder: Recorder,
        limits: Limits,
        laws: Laws,
        budget: RetryBudget,
    ) -> None:
        self._recorder = recorder
        self._limits = limits
        self._laws = laws
        self._budget = budget
        self._attempts = Attempts(rng.randbytes(32))
        self._hints = Hints(rng)

    def recognise(self, ticket: Ticket, ask: Demand, now: float) -> None:
        """Its body is known: whether it comes back from a failure, said so or not."""
        ticket.fingerprint = self._attempts.fingerprint(ticket.tenant, ticket.model, ask.identity)
        returned = self._attempts.returned(ticket.fingerprint, now)
        held = self._budget.release(ticket.fingerprint, now)
        if returned is not None:
            self._recorder.retry_returned(taken=returned.taken, obeyed=returned.obeyed)
            ticket.promised = held and bool(returned.obeyed)
            ticket.earlier, ticket.deaths = returned.failure.span, returned.failure.deaths
        if ticket.lane is Lane.FIRST and returned is not None:
            ticket.attempt = returned.failure.attempt + 1
            ticket.detected_by = FINGERPRINT
            ticket.lane = Lane.RETRY
            self._recorder.moved(Lane.FIRST, Lane.RETRY)
        self._recorder.retry_arrival(attempt=ticket.attempt, detected_by=ticket.detected_by)

    def unrecognised(self, ticket: Ticket) -> None:
        """It ended before its body was known: its headers' word is all there is."""
        self._recorder.retry_arrival(attempt=ticket.attempt, detected_by=ticket.detected_by)

    def admitted(self, ticket: Ticket, now: float, *, paid: bool) -> None:
        """A first attempt earns for the retries to come; a retry pays, unless it was free."""
        cost = ticket.estimate.seconds
        self._budget.mean_cost = self._laws.mean_cost
        if ticket.lane is Lane.FIRST:
            share = self._limits.get(Limit.RETRY_SHARE)
            self._budget.deposit(ticket.tenant, share * cost, now)
        elif paid:
            self._budget.withdraw(ticket.tenant, cost, now)

    def advise(self, refusal: Refusal, ticket: Ticket, now: float, *, served: bool) -> Refusal:
        """The refusal with its hint; what was advised is remembered and held for the client.
        `served`: there is an engine to wait for."""
        if refusal.outcome is Outcome.RETRY_BUDGET:
            self._recorder.retry_denied(refusal.limit_name)
        met = ticket.denied if refusal.outcome is Outcome.QUOTA else None
        advised = None
        if refusal.reason is not Reason.ENGINES_LOST:  # the next engines would be lost as well
            advised = self._hints.advise(
                refusal.outcome,
                now=now,
                wait=met.refill_in if met else self._wait(refusal, ticket, now) if served else 0.0,
                spacing=met.every if met else self._spacing(ticket),
                deadline=ticket.deadline,
                tenant=ticket.tenant,
            )
        if advised is not None:
            self._recorder.advised(advised)
        if ticket.fingerprint and refusal.outcome in RETRIED:
            span = None if ticket.trace is None else ticket.trace.id
            failure = Failure(now, ticket.attempt, advised, span, ticket.deaths)
            self._attempts.failed(ticket.fingerprint, failure)
            if advised is not None and met is None:  # one at its quota is promised nothing
                slot = now + advised
                self._budget.hold(ticket.fingerprint, ticket.estimate.seconds, slot, now)
        return replace(refusal, retry_after=advised)

    def _wait(self, refusal: Refusal, ticket: Ticket, now: float) -> float:
        """W in seconds, which a refusal for it has measured; 0 where nobody waits for a slot."""
        if STATUS[refusal.outcome].advice is not Advice.SLOT or not self._laws.predicts:
            return 0.0
        if refusal.reason is Reason.PREDICTED_WAIT and refusal.measured is not None:
            return refusal.measured
        wait = self._laws.wait(ticket, now)
        return 0.0 if wait is None else wait.seconds

    def _spacing(self, ticket: Ticket) -> float:
        """C / (3 * beta * mu)."""
        share = OVERBOOKED * self._limits.get(Limit.RETRY_SHARE)
        cost = ticket.estimate.seconds or self._laws.mean_cost
        return cost / (share * self._laws.drain) if share else math.inf
