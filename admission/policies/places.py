"""The queue's bounds: who finds a place, and whom it displaces. They hold under every policy."""

import math

from surgetank.admission import refusals
from surgetank.admission.kv import LOW_CLASSES
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.queue import Queue
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.vocabulary import Outcome, Priority, Reason

_LOW_PLACES = 0.75  # of the queue, the most that batch and sheddable may fill


class Places:
    """Reads the queue; whoever enqueues changes it."""

    def __init__(self, limits: Limits, queue: Queue) -> None:
        self._limits = limits
        self._queue = queue

    def find(self, ticket: Ticket) -> tuple[Ticket, ...] | Refusal:
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
