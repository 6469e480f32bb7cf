"""A policy in its part, with the faults that it may have: none of them reaches a request."""

import logging
from collections.abc import Mapping

from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.policies.policy import Admission, AdmissionPolicy
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.family import Counter

log = logging.getLogger(__name__)

MOST_FAULTS = 5  # then it is not asked any more

# Limits that act when a request is decided on. The others act on the engine as a whole, which all
# requests share: a share of them cannot have values of its own.
DECISIVE = frozenset(
    {
        Limit.KAPPA,
        Limit.QUEUE_REQUESTS,
        Limit.QUEUE_TOKENS,
        Limit.RETRY_SHARE,
        Limit.LOWEST_CLASS,
        Limit.SHEDDABLE_SHARE,
        Limit.ADMISSION_SHARE,
    }
)


class Part:
    """One policy by its name. `values`: limits that it is asked under, for a control policy."""

    def __init__(
        self,
        name: str,
        policy: AdmissionPolicy,
        limits: Limits,
        errors: Counter | None = None,
    ) -> None:
        self.name = name
        self.errors = errors or Counter()
        self.faults = 0  # since it plays this part
        self.values: Mapping[Limit, float] = {}
        self._policy = policy
        self._limits = limits

    @property
    def broken(self) -> bool:
        """It failed so often that it is not asked any more."""
        return self.faults >= MOST_FAULTS

    def decide(
        self, ticket: Ticket, card: ModelCard, now: float, stalled_for: float | None
    ) -> Admission | Refusal | None:
        """Its answer; None when it has none: it failed, now or too often."""
        if self.broken:
            return None
        try:
            if not self.values:
                return self._policy.decide(ticket, card, now, stalled_for)
            with self._limits.supposing(self.values):
                return self._policy.decide(ticket, card, now, stalled_for)
        except Exception as error:  # a policy may be foreign code, and the request is not at fault
            self.failed(error)
            return None

    def ended(self, ticket: Ticket, now: float) -> None:
        """For it to learn from."""
        if self.broken:
            return
        try:
            self._policy.ended(ticket, now)
        except Exception as error:  # as above
            self.failed(error)

    def suppose(self, values: Mapping[Limit, float]) -> None:
        """Ask it under these values from now on; raises LimitError for what cannot be."""
        self.values = {
            name: self._limits.possible(name, value)
            for name, value in values.items()
            if name in DECISIVE
        }

    def failed(self, error: Exception) -> None:
        """Count a fault; the log has the first one's traceback."""
        self.faults += 1
        self.errors.value += 1
        if self.faults == 1:
            log.error("policy %s failed; another decides", self.name, exc_info=error)
        if self.faults == MOST_FAULTS:
            log.error("policy %s failed %d times: it is off", self.name, self.faults)
