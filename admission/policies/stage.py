"""Who decides: the live policy, a candidate for its share of the calls, and shadows beside them."""

from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.canary import Canary
from surgetank.admission.policies.judged import judged
from surgetank.admission.policies.laws import LawsPolicy
from surgetank.admission.policies.part import Part
from surgetank.admission.policies.plugins import admission_plugin
from surgetank.admission.policies.policy import Admission, AdmissionPolicy
from surgetank.admission.policies.probation import Probation
from surgetank.admission.policies.rule import built
from surgetank.admission.policies.shadow import Shadow
from surgetank.admission.policies.site import Site
from surgetank.admission.policies.table import DEFAULT
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard


class Stage:
    """Where policies play their parts; whoever puts them there sees to their ends.

    With `laws` live and nobody else there, a decision costs one comparison more than without.
    Whatever fails is stood in for by `laws`.
    """

    def __init__(self, site: Site, live: str = DEFAULT) -> None:
        """Raises PolicyError for a policy that there is not."""
        self.site = site
        self.shadows: dict[str, Shadow] = {}
        self.canary: Canary | None = None
        self.probation: Probation | None = None
        self._laws = LawsPolicy(site)
        self.configured = self.live = self._standing(live)
        self._alone = False
        self.changed()

    def fresh(self, name: str) -> AdmissionPolicy:
        """A new instance of an admission policy; raises PolicyError."""
        return built(admission_plugin(name), self.site)

    def changed(self) -> None:
        """To be called after anything of it was set."""
        watched = self.shadows or self.canary is not None or self.probation is not None
        self._alone = self.live.name == DEFAULT and not watched

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        """What is done with the request."""
        if self._alone:
            return self._laws.decide(ticket, card, now, stalled_for)
        canary = self.canary
        chosen = canary is not None and canary.takes(ticket)
        part = canary.part if canary is not None and chosen else self.live
        done = part.decide(ticket, card, now, stalled_for)
        if done is None and chosen:
            done = self.live.decide(ticket, card, now, stalled_for)
        if done is None:
            done = self._laws.decide(ticket, card, now, stalled_for)
        for shadow in self.shadows.values():
            shadow.watch(ticket, card, now, stalled_for, done)
        if canary is not None:
            canary.decided(ticket, candidate=chosen, admitted=isinstance(done, Admission))
        return done

    def ended(self, ticket: Ticket, now: float) -> None:
        """A request is over, admitted or not."""
        if self._alone:
            return
        how = judged(ticket, self.site.laws.target(ticket.priority))
        if self.canary is not None:
            self.canary.ended(ticket, how)
        if self.probation is not None:
            self.probation.ended(ticket, how)
        for shadow in self.shadows.values():
            shadow.ended(ticket, how)
        if ticket.queued_at is not None:
            for part in self.parts():
                part.ended(ticket, now)

    def parts(self) -> list[Part]:
        """Everybody on stage, the live policy first."""
        canary = [] if self.canary is None else [self.canary.part]
        return [self.live, *canary, *(shadow.part for shadow in self.shadows.values())]

    def _standing(self, name: str) -> Part:
        policy = self._laws if name == DEFAULT else self.fresh(name)
        return Part(name, policy, self.site.limits)
