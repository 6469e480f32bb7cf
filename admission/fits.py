"""What no amount of waiting would let in: told so at once, as the client's to change."""

from math import inf

from surgetank.admission.kv import blocks_for
from surgetank.admission.limits import Limit, Limits
from surgetank.admission.outcome import Refusal
from surgetank.admission.refusals import over
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import ModelCard
from surgetank.telemetry.vocabulary import Outcome, Reason


def never_fits(ticket: Ticket, card: ModelCard, limits: Limits) -> Refusal | None:
    """Wider, longer or larger than anything the engine can run; all of max_tokens counts here."""
    total = ticket.prompt_tokens + ticket.max_tokens
    blocks = blocks_for(ticket.prompt_tokens, ticket.max_tokens, ticket.n, card.kv_block_size)
    checks = (
        (Reason.NEVER_FITS_SLOTS, "n", ticket.n, limits.get(Limit.MAX_N), Limit.MAX_N),
        (Reason.NEVER_FITS_SLOTS, "n", ticket.n, card.max_num_seqs, "max_num_seqs"),
        (
            Reason.NEVER_FITS_CONTEXT,
            "max_tokens",
            ticket.max_tokens,
            limits.get(Limit.MAX_OUTPUT_TOKENS),
            Limit.MAX_OUTPUT_TOKENS,
        ),
        (Reason.NEVER_FITS_CONTEXT, None, total, card.context_length or inf, "context_length"),
        (Reason.NEVER_FITS_KV, None, blocks, card.kv_blocks or inf, "kv_blocks"),
    )
    for reason, param, measured, limit, name in checks:
        if measured > limit:
            return over(Outcome.INVALID, reason, measured, limit, name, param)
    return None


def never_queued(ticket: Ticket, limits: Limits) -> Refusal | None:
    """Larger than the whole queue; a temporary override does not make it `never`."""
    for name, amount in (
        (Limit.QUEUE_REQUESTS, ticket.n),
        (Limit.QUEUE_TOKENS, ticket.prompt_tokens),
    ):
        ceiling = limits.ceiling(name)
        if amount > ceiling:
            return over(Outcome.INVALID, Reason.NEVER_FITS_QUEUE, amount, ceiling, name)
    return None
