"""Whether one engine has room for a request: slots, KV memory, steps short enough, prompts to read.

The bounds hold for each engine; what it runs and has read is its own (routing/side.py).
"""

import math
from enum import StrEnum

from surgetank.admission.binding import added_seconds, largest_batch
from surgetank.admission.headroom import headroom, low_batch, noticed
from surgetank.admission.kv import LOW_CLASSES, blocks_for
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.queue import Queue
from surgetank.admission.routing.others import left
from surgetank.admission.routing.side import EngineSide
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import Ticket
from surgetank.telemetry.slo import SloTargets
from surgetank.telemetry.vocabulary import Priority

_COLD_HEADROOM = 0.25  # of the slots, left by low classes while rates are unknown


class Held(StrEnum):
    """What keeps a request out of the engine: the bound that it meets first."""

    PREFILL = "prefill"  # prompts that go first fill the next step
    IN_FLIGHT_SEQS = "in_flight_seqs"  # a limit, or the engine's slots
    MAX_NUM_SEQS = "max_num_seqs"
    TPOT = "tpot"  # one more would make tokens too slow
    HEADROOM = "headroom"  # the slots that are left are kept for the classes above
    KV = "kv"  # the promised share of the KV pool


_SLOT_LIMITS = (Held.IN_FLIGHT_SEQS, Held.MAX_NUM_SEQS)


class Room:
    """Asks and changes nothing."""

    def __init__(
        self,
        *,
        config: LawsConfig,
        targets: SloTargets,
        limits: Limits,
        queue: Queue,
        sides: Sides,
    ) -> None:
        self._config = config
        self._targets = targets
        self._limits = limits
        self._queue = queue
        self._sides = sides

    def slots_free(self, side: EngineSide, ticket: Ticket, now: float) -> bool:
        """Whether slots and KV memory are there for it, by the limits and by the TPOT target."""
        card = side.card
        if card is None or not side.ledger.permits:
            return card is not None  # whatever it is, an empty engine takes it
        most, share = self.slots(side), self._limits.get(Limit.KV_RESERVE)
        if self._config.dynamic:
            most = min(most, self.largest_batch(side, ticket))
            most = self._left_to(side, ticket, most, now)
            if ticket.priority in LOW_CLASSES:
                share = min(share, self._limits.get(Limit.KV_RESERVE_LOW))
        return side.ledger.room(
            ticket.n,
            blocks_for(ticket.prompt_tokens, ticket.estimate.reserve, ticket.n, card.kv_block_size),
            max_seqs=most,
            max_kv_blocks=left(share * (side.kv_blocks or math.inf), side.kv_others),
        )

    def slots(self, side: EngineSide) -> float:
        """Sequences that it may have, by the limits."""
        get = self._limits.get
        return side.slots(min(get(Limit.IN_FLIGHT_SEQS), get(Limit.MAX_NUM_SEQS)))

    def has_slot(self, side: EngineSide) -> bool:
        """Whether it may have one sequence more, by the limits."""
        return side.ledger.seqs < self.slots(side)

    def prefill_free(self, side: EngineSide, priority: Priority) -> bool:
        """Whether the engine has less than a step's worth of prompts to read that go first."""
        if not self._config.dynamic or not side.view.fit.steps:
            return True  # nobody tells what is read
        return side.backlog.before(priority) < side.view.chunk

    def held(self, side: EngineSide, ticket: Ticket, now: float) -> Held | None:
        """What keeps it out of the engine now; None: nothing."""
        if not self.prefill_free(side, ticket.priority):
            return Held.PREFILL
        if self.slots_free(side, ticket, now):
            return None
        bounds = {held: side.slots(self._limits.get(Limit(held))) for held in _SLOT_LIMITS}
        if self._config.dynamic:
            bounds[Held.TPOT] = self.largest_batch(side, ticket)
        tightest = min(bounds, key=bounds.__getitem__)
        if side.ledger.seqs + ticket.n > bounds[tightest]:
            return tightest
        most = self._left_to(side, ticket, bounds[tightest], now)
        kept = self._config.dynamic and side.ledger.seqs + ticket.n > most
        return Held.HEADROOM if kept else Held.KV

    def largest_batch(self, side: EngineSide, ticket: Ticket) -> float:
        """B_max there, with the ticket in it; infinite while unknown."""
        rates = side.view.rates
        if rates is None:
            return math.inf
        prompt, output = _with(side, ticket)
        return largest_batch(
            rates.model,
            target=self._targets.tpot,
            prompt=prompt,
            output=output,
            least=self._config.least_batch,
        )

    def kv_share(self, side: EngineSide) -> float:
        """The pool's use: what is promised, or what the engine reported if that is more."""
        promised = side.ledger.kv_blocks / (side.kv_blocks or math.inf)
        return max(promised, side.kv_used or 0.0)

    def sees_kv(self, side: EngineSide) -> bool:
        """Whether anything is known of its pool."""
        return side.card is not None and (bool(side.kv_blocks) or side.kv_used is not None)

    def _left_to(self, side: EngineSide, ticket: Ticket, slots: float, now: float) -> float:
        """How many of the slots its class may fill; the others are kept for those above it,
        unless its floor share is due."""
        rates, low = side.view.rates, ticket.priority in LOW_CLASSES
        if rates is None:
            return slots - (_COLD_HEADROOM * slots if low else 0.0)
        above = self._queue.above_rate(ticket.priority, now) * self._sides.portion(side)
        if not noticed(above, rates.drain) or self._queue.due(ticket):
            return slots
        slots -= headroom(above, rates.drain)
        if not low:
            return slots
        each = added_seconds(rates.model, *_with(side, ticket))
        fill = low_batch(self._config.low_fill, rates.model.a * rates.chunk, each)
        return min(slots, max(fill, self._config.least_batch))


def _with(side: EngineSide, ticket: Ticket) -> tuple[float, float]:
    """Mean prompt and output tokens of all that runs there, the ticket included."""
    ledger = side.ledger
    seqs = ledger.seqs + ticket.n
    output = (ledger.output + ticket.n * ticket.estimate.output) / seqs
    return (ledger.prompt + ticket.prompt_tokens) / seqs, max(1.0, output)
