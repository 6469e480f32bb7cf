"""Tenants' quotas and the retry budget of all sidecars, at the gate: taken once, given back once.

The gate's own arithmetic comes first, so that what it refuses costs no quota and counts as no
demand; and nothing here waits, for the shares are renewed in the background.
"""

from surgetank.admission import refusals
from surgetank.admission.leases.quotas import Denied, Quota, Quotas
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.policy import Admission
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.vocabulary import Lane


class QuotaKeeper:
    """Asks the shared limits for one desk."""

    def __init__(self, quotas: Quotas, limits: Limits) -> None:
        self._quotas = quotas
        self._limits = limits

    def admit(self, ticket: Ticket, verdict: Admission | Refusal) -> Admission | Refusal:
        """The gate's verdict, unless a shared limit is met. What is taken, the ticket holds."""
        if self._quotas.unlimited or isinstance(verdict, Refusal):
            return verdict
        hits = max(1, ticket.hits)
        amounts = {
            Quota.REQUESTS: float(hits),
            Quota.TOKENS: float(hits * ticket.cost_tokens),
            Quota.CONCURRENCY: 1.0,
        }
        if verdict.paid and self._quotas.shared:
            amounts[Quota.RETRIES] = ticket.estimate.seconds
        answer = self._quotas.take(ticket.tenant, amounts)
        if isinstance(answer, Denied):
            ticket.denied = answer
            return refusals.quota(answer)
        ticket.taken = answer
        if ticket.lane is Lane.FIRST and self._quotas.shared:
            self._quotas.earn(self._limits.get(Limit.RETRY_SHARE) * ticket.estimate.seconds)
        return verdict

    def ended(self, ticket: Ticket) -> None:
        """The ticket's one end: its slot comes back, and the tokens that it did not use; all of it
        when it was never queued, or only asked."""
        taken, ticket.taken = ticket.taken, None
        if taken is None:
            return
        if ticket.queued_at is None or not ticket.hits:
            taken.undo()
        else:
            taken.end({Quota.TOKENS: ticket.hits * ticket.unused_tokens})
