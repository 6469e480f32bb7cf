"""The gate: admits a request to the queue or refuses it, by its limits and its policy.

It reads no clock, starts no task and learns nothing: it asks the estimators. So the same code
decides in real time and in virtual time.
"""

import math
import random

from pydantic import BaseModel, ConfigDict, Field, field_validator

from surgetank.admission.fits import never_fits
from surgetank.admission.laws import Laws
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import SPECS, Limit, Limits, limit_field
from surgetank.admission.outcome import Refusal
from surgetank.admission.pace import Pace
from surgetank.admission.policies.plugins import admission_plugin
from surgetank.admission.policies.policy import Admission
from surgetank.admission.policies.site import Site
from surgetank.admission.policies.stage import Stage
from surgetank.admission.policies.table import DEFAULT
from surgetank.admission.queue import Queue
from surgetank.admission.retry_budget import RetryBudget
from surgetank.admission.routing.side import EngineSide
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard


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
    policy: str = Field(
        default=DEFAULT,
        min_length=1,
        description="Who decides on requests: an admission policy by name, see policies.md.",
    )
    laws: LawsConfig = Field(default_factory=LawsConfig)

    @field_validator("policy")
    @classmethod
    def _known(cls, name: str) -> str:
        admission_plugin(name)
        return name

    def base_limits(self) -> dict[Limit, float]:
        """The configured value of every limit that is configured here."""
        ours = type(self).model_fields
        return {name: float(getattr(self, name)) for name in SPECS if name in ours}


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
        rng: random.Random,
    ) -> None:
        """Raises PolicyError for a configured policy that there is not."""
        self._enforce = config.enforce
        self._limits = limits
        self._queue = queue
        self._laws = laws
        site = Site(config.laws, limits, queue, pace, laws, budget, rng)
        self.policies = Stage(site, config.policy)

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
        """What can never fit is refused; on the rest the live policy decides, or the candidate
        whose share it is. `stalled_for`: the engine's silence, as its backend tells it."""
        refusal = never_fits(ticket, card, self._limits) or self._laws.fits_none(ticket)
        if refusal is not None:
            return refusal
        if not self._enforce:
            return Admission()
        return self.policies.decide(ticket, card, now, stalled_for)

    def has_room(self, ticket: Ticket, side: EngineSide, now: float) -> bool:
        """Whether the ticket may go to that engine now."""
        room = self._laws.room
        if self._enforce and not room.prefill_free(side, ticket.priority):
            return False
        return room.slots_free(side, ticket, now)

    def gives_way(self, ticket: Ticket, now: float) -> bool:
        """The check at dequeue: what cannot be in time any more gives way, where another that waits
        still can. Admission keeps waits below the target, so this is for what it could not
        foresee; without it one stall makes everybody late, each because of the one before."""
        if not self._enforce or not self._laws.missed(ticket, now):
            return False
        newest = next(self._queue.newest(ticket.priority))
        return not self._laws.missed(newest, now)
