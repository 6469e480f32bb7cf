"""What no amount of waiting would let in: told so at once, as the client's to change."""

from math import inf

from surgetank.admission.kv import blocks_for, usable
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.refusals import over
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Outcome, Reason


def never_fits(ticket: Ticket, card: ModelCard, limits: Limits) -> Refusal | None:
    """Wider, longer or larger than anything the engine can run; all of max_tokens counts here."""
    n, prompt, most = ticket.n, ticket.prompt_tokens, ticket.max_tokens
    if n > (limit := limits.get(Limit.MAX_N)):
        return _never(Reason.NEVER_FITS_SLOTS, n, limit, Limit.MAX_N, "n")
    if n > (limit := card.max_num_seqs):
        return _never(Reason.NEVER_FITS_SLOTS, n, limit, "max_num_seqs", "n")
    if most > (limit := limits.get(Limit.MAX_OUTPUT_TOKENS)):
        name = Limit.MAX_OUTPUT_TOKENS
        return _never(Reason.NEVER_FITS_CONTEXT, most, limit, name, "max_tokens")
    if prompt + most > (limit := card.context_length or inf):
        return _never(Reason.NEVER_FITS_CONTEXT, prompt + most, limit, "context_length")
    blocks, pool = blocks_for(prompt, most, n, card.kv_block_size), usable(card)
    if blocks > (pool or inf):
        return _never(Reason.NEVER_FITS_KV, blocks, pool, "kv_blocks")
    return None


def never_queued(ticket: Ticket, limits: Limits) -> Refusal | None:
    """Larger than the whole queue; a temporary override does not make it `never`."""
    for name, amount in (
        (Limit.QUEUE_REQUESTS, ticket.n),
        (Limit.QUEUE_TOKENS, ticket.prompt_tokens),
    ):
        if amount > limits.get(name) and amount > (ceiling := limits.ceiling(name)):
            return _never(Reason.NEVER_FITS_QUEUE, amount, ceiling, name)
    return None


def _never(
    reason: Reason, measured: float, limit: float, name: str, param: str | None = None
) -> Refusal:
    return over(Outcome.INVALID, reason, measured, limit, name, param)
