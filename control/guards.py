"""What an operator's act would make worse, said in a sentence instead of being done.

Each rule is about one moment: the same act is fine at another. `--force` does it all the same.
"""

from collections.abc import Callable

from surgetank.admission.limits import Limit
from surgetank.control.diagnose.facts import Facts
from surgetank.control.diagnose.hold import Cause
from surgetank.control.diagnose.verdict import AMPLIFIED, PREDOMINANT, RETRIES, WASTE
from surgetank.telemetry.vocabulary import Priority


def objection(limit: Limit, before: float, after: float, facts: Facts) -> str | None:
    """Why setting the limit from `before` to `after` would make things worse now; None: it would
    not, as far as can be told."""
    rule = _RULES.get(limit)
    return None if rule is None or before == after else rule(limit, before, after, facts)


def _admits_more(limit: Limit, before: float, after: float, facts: Facts) -> str | None:
    if after <= before or not (facts.waiting or facts.refusing):
        return None
    lowest = Priority(int(before)).label
    return (
        f"only {lowest} and above are admitted now, and work waits: {limit} {after:g} would let "
        "in more; to open up again, end what holds: surgetank limits show"
    )


def _feeds_a_storm(limit: Limit, before: float, after: float, facts: Facts) -> str | None:
    storm = facts.flow.retries >= RETRIES and facts.amplification > AMPLIFIED
    if after <= before or not storm:
        return None
    return (
        f"clients send {facts.amplification:.1f} arrivals per first attempt: raising {limit} from "
        f"{before:g} to {after:g} would feed the storm; lower it, or leave it"
    )


def _overfills(limit: Limit, before: float, after: float, facts: Facts) -> str | None:
    full = facts.causes[Cause.MEMORY] and facts.share(Cause.MEMORY) >= PREDOMINANT
    if after <= before or not (full or facts.waste > WASTE):
        return None
    used = facts.now.laws.kv_used or 0.0
    return (
        f"KV memory is what is short ({used:.0%} of the pool, {facts.waste:.0%} of the tokens "
        f"computed again): raising {limit} to {after:g} would mean preemption"
    )


def _starves(limit: Limit, before: float, after: float, facts: Facts) -> str | None:
    """Memory's rule, and the other way round: what binds already is not narrowed further."""
    if after >= before:
        return _overfills(limit, before, after, facts)
    thrash = facts.waste > WASTE  # then fewer at once is the cure
    held = facts.causes[Cause.LIMIT] and facts.share(Cause.LIMIT) >= PREDOMINANT
    if held and facts.telling and not thrash:
        return (
            f"a limit of ours already keeps work out of an engine with room: {limit} {after:g} "
            "would keep out more; surgetank diagnose names the limit"
        )
    return None


def _slows_steps(limit: Limit, before: float, after: float, facts: Facts) -> str | None:
    step, target = facts.step, facts.now.tpot_target
    if after <= before or step is None or step <= target or not facts.now.dispatched:
        return None
    return (
        f"a step takes {step * 1e3:.0f} ms, more than the {target * 1e3:.0f} ms that a token may: "
        f"{limit} {after:g} would make it longer"
    )


def _lengthens(limit: Limit, before: float, after: float, facts: Facts) -> str | None:
    age, allowed = facts.now.queue_oldest_age, facts.now.laws.threshold
    passing = facts.waiting < PREDOMINANT * len(facts.recent)
    if after <= before or age is None or age <= allowed or passing:
        return None
    return (
        f"the oldest request has waited {age:.2f} s of the {allowed:.2f} s that it may: {limit} "
        f"{after:g} would let more come late"
    )


_Rule = Callable[[Limit, float, float, Facts], str | None]
_RULES: dict[Limit, _Rule] = {
    Limit.LOWEST_CLASS: _admits_more,
    Limit.RETRY_SHARE: _feeds_a_storm,
    Limit.IN_FLIGHT_SEQS: _starves,
    Limit.MAX_NUM_SEQS: _starves,
    Limit.KV_RESERVE: _overfills,
    Limit.KV_RESERVE_LOW: _overfills,
    Limit.MAX_OUTPUT_TOKENS: _overfills,
    Limit.MAX_BATCH_TOKENS: _slows_steps,
    Limit.QUEUE_REQUESTS: _lengthens,
    Limit.QUEUE_TOKENS: _lengthens,
    Limit.QUEUE_WAIT: _lengthens,
    Limit.KAPPA: _lengthens,
}
