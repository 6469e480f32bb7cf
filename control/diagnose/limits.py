"""Which of our own limits keeps work out of an engine that has room for it."""

from dataclasses import dataclass

from surgetank.admission.limits import Limit, LimitView
from surgetank.admission.room import Held
from surgetank.control.diagnose.facts import Facts
from surgetank.control.diagnose.hold import Cause, cause_of, lowered
from surgetank.control.diagnose.look import Look
from surgetank.telemetry.vocabulary import Reason

_ENOUGH = 5  # refusals
_OFTEN = 0.5  # of the looks or refusals
_MOST = 0.4

# The limits that a refusal can be due to.
BEHIND: dict[Reason, tuple[Limit, ...]] = {
    Reason.QUEUE_REQUESTS: (Limit.QUEUE_REQUESTS,),
    Reason.QUEUE_TOKENS: (Limit.QUEUE_TOKENS,),
    Reason.NEVER_FITS_QUEUE: (Limit.QUEUE_TOKENS, Limit.QUEUE_REQUESTS),
    Reason.PREDICTED_WAIT: (Limit.KAPPA,),
    Reason.KV_PRESSURE: (Limit.KV_RESERVE_LOW, Limit.KV_RESERVE),
    Reason.NEVER_FITS_KV: (Limit.KV_RESERVE,),
    Reason.BROWN_OUT: (
        Limit.LOWEST_CLASS,
        Limit.BROWNOUT_LEVEL,
        Limit.SHEDDABLE_SHARE,
        Limit.ADMISSION_SHARE,
    ),
    Reason.RETRY_BUDGET: (Limit.RETRY_SHARE,),
    Reason.NEVER_FITS_SLOTS: (Limit.MAX_N, Limit.IN_FLIGHT_SEQS, Limit.MAX_NUM_SEQS),
    Reason.NEVER_FITS_CONTEXT: (Limit.MAX_OUTPUT_TOKENS,),
}
_QUEUE_BOUNDS = (Reason.QUEUE_REQUESTS, Reason.QUEUE_TOKENS)


@dataclass(frozen=True, slots=True)
class Binding:
    """The limit, and what shows that it binds."""

    view: LimitView
    looks: int = 0  # at which it kept the next request out
    of_looks: int = 0
    refused: int = 0  # for its sake
    reason: Reason = Reason.NONE


def binding(facts: Facts) -> Binding | None:
    """By what waits in front of room, or by what most refusals are due to."""
    return _holding(facts) or _refusing(facts)


def _holding(facts: Facts) -> Binding | None:
    if facts.share(Cause.LIMIT) < _MOST:
        return None
    ours = [look for look in facts.telling if cause_of(look) is Cause.LIMIT]
    if not ours:
        return None
    return Binding(ours[-1].desk.view(_name(ours[-1])), len(ours), len(facts.telling))


def _name(look: Look) -> Limit:
    held = look.held
    if held is None:
        return Limit.MAX_NUM_SEQS  # the engine says so, of what it has itself
    if held in (Held.IN_FLIGHT_SEQS, Held.MAX_NUM_SEQS):
        return Limit(held.value)
    return Limit.KV_RESERVE if lowered(look.desk, Limit.KV_RESERVE) else Limit.KV_RESERVE_LOW


def _refusing(facts: Facts) -> Binding | None:
    refused = facts.counts.refused
    for reason, count in refused.most_common(2):
        if count < _ENOUGH or count < _OFTEN * refused.total():
            return None
        for limit in BEHIND.get(reason, ()):
            if lowered(facts.now, limit):
                return Binding(facts.now.view(limit), refused=count, reason=reason)
        if reason in _QUEUE_BOUNDS and facts.share(Cause.NONE) >= _OFTEN:
            limit = BEHIND[reason][0]
            return Binding(facts.now.view(limit), refused=count, reason=reason)
    return None
