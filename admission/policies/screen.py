"""What holds under every policy: what cannot be in time, and the classes that are held back."""

from surgetank.admission import refusals
from surgetank.admission.fits import never_queued
from surgetank.admission.limits import Limit
from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.places import Places
from surgetank.admission.policies.policy import Admission, AdmissionPolicy
from surgetank.admission.policies.site import Site
from surgetank.admission.ration import Ration
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Priority


class Screen:
    """An operator's `shed`, the brown-out ladder and the recovery act here, before any policy."""

    def __init__(self, site: Site) -> None:
        self._limits = site.limits
        self._laws = site.laws
        self._sheddable, self._all = Ration(), Ration()

    def refuses(self, ticket: Ticket, now: float) -> Refusal | None:
        """The first that refuses does: what never finds a place, what comes too late, who is held
        back. Counts the request against the shares: ask once for each."""
        return (
            never_queued(ticket, self._limits)
            or self._too_slow(ticket, now)
            or self._held_back(ticket)
        )

    def _too_slow(self, ticket: Ticket, now: float) -> Refusal | None:
        left = ticket.time_left(now)
        if left is None or left > (least := self._laws.least(ticket)):
            return None
        return refusals.too_slow(least, left)

    def _held_back(self, ticket: Ticket) -> Refusal | None:
        """Brown-out and recovery: classes, and shares of them."""
        lowest = self._limits.get(Limit.LOWEST_CLASS)
        if ticket.priority > lowest:
            return refusals.held_back(ticket.priority, lowest)
        if ticket.priority is Priority.SHEDDABLE:
            share = self._limits.get(Limit.SHEDDABLE_SHARE)
            if not self._sheddable.passes(share):
                return refusals.thinned(ticket.priority, share, Limit.SHEDDABLE_SHARE)
        if ticket.priority is not Priority.CRITICAL:
            share = self._limits.get(Limit.ADMISSION_SHARE)
            if not self._all.passes(share):
                return refusals.thinned(ticket.priority, share, Limit.ADMISSION_SHARE)
        return None


class Screened:
    """Any policy behind the screen and before the queue's bounds."""

    def __init__(self, site: Site, policy: AdmissionPolicy) -> None:
        self._screen = Screen(site)
        self._places = Places(site.limits, site.queue)
        self._policy = policy

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        """Screen, policy, bounds. Raises TypeError for an answer that is none."""
        refusal = self._screen.refuses(ticket, now)
        if refusal is not None:
            return refusal
        verdict = self._policy.decide(ticket, card, now, stalled_for)
        if isinstance(verdict, Refusal):
            return verdict
        if not isinstance(verdict, Admission):
            raise TypeError(f"decide() returned {verdict!r}; allowed: Admission, Refusal")
        places = self._places.find(ticket)
        if isinstance(places, Refusal):
            return places
        return Admission(places, verdict.wait, verdict.paid)

    def ended(self, ticket: Ticket, now: float) -> None:
        """For the policy to learn from."""
        self._policy.ended(ticket, now)
