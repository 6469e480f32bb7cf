"""Rules: policies that count what is in flight, waits or is in use, and make a policy of the gate.

A rule knows nothing of our estimators, so the same one stands at the gate and, as a rival, in the
lab. `Seen` means the same at both places but for the line: the gate's here, the engine's there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from surgetank.admission import refusals
from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.policy import Admission, AdmissionPolicy, Plugin
from surgetank.admission.policies.screen import Screened
from surgetank.admission.policies.site import Site
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Outcome, Reason


@dataclass(slots=True)
class Seen:
    """What a rule may look at: its own ledger, and the engine's last metrics."""

    in_flight: int = 0
    waiting: int = 0  # in the line
    waiting_tokens: int = 0  # prompt tokens there
    kv_usage: float = 0.0  # share of the pool, as the last step told


@dataclass(frozen=True, slots=True)
class Met:
    """What a rule met when it said no."""

    reason: Reason
    measured: float
    limit: float
    name: str  # of the limit


class Rule(Protocol):
    """Everything is told in order of time; `now` and `began` in monotonic seconds."""

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """Whether a request of so many prompt tokens may come in."""

    def met(self, prompt: int, seen: Seen) -> Met:
        """The limit in the way of that request."""

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """A request that came in at `began` is over."""


class Ruled:
    """A rule at the gate."""

    def __init__(self, site: Site, rule: Rule) -> None:
        self._site = site
        self._rule = rule
        self._kv_usage = 0.0

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal:
        """Whatever the rule says, as a refusal that names what it met."""
        self._kv_usage = self._site.laws.kv_share()
        seen = self._seen(0)
        if self._rule.admits(now, ticket.prompt_tokens, seen):
            return Admission()
        met = self._rule.met(ticket.prompt_tokens, seen)
        return refusals.over(Outcome.OVERLOAD, met.reason, met.measured, met.limit, met.name)

    def ended(self, ticket: Ticket, now: float) -> None:
        """For the rule to learn from; the request still holds its place, and counts no more."""
        seen = self._seen(ticket.n)
        self._rule.ended(ticket.arrived, now, ticket.outcome is Outcome.OK, seen)

    def _seen(self, less: int) -> Seen:
        queue = self._site.queue
        in_flight = queue.requests + self._site.laws.in_engine - less
        return Seen(in_flight, queue.requests, queue.tokens, self._kv_usage)


def ruled(make: Callable[[Site], Rule], help: str) -> Plugin:
    """The plug-in of a rule."""

    def build(site: Site) -> AdmissionPolicy:
        return Ruled(site, make(site))

    return Plugin(build, help)


def built(plugin: Plugin, site: Site) -> AdmissionPolicy:
    """A policy that is ready to decide: behind the screen and the bounds, if it has none itself."""
    policy = plugin.build(site)
    return policy if plugin.bounded else Screened(site, policy)
