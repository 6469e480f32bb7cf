"""The verdict: which of seven words fits, why, and the command to go on with. A pure function.

Asked in this order, the first that fits holds, because each explains those after it:

    backend     no engine, or it has work and does not step, or its answers are faults
    limit       an operator closed or narrowed something, and that keeps work out of an engine with
                room; or a configured limit does
    memory      the KV pool is promised out, or sequences are put back for want of it
    clients     retries make up the load: they come without waiting as told, or the first attempts
                alone would fit
    scheduling  the engine has room, and the way into its batch does not fill it
    compute     there is more work than the engine can do in time
    healthy     nobody waits long enough to matter, nothing is refused for load, targets are met

A ramp fills slots and makes no queue; so nothing but a queue that lasts, refusals, missed targets
or a standing engine counts as trouble, each over a window and with a least number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from surgetank.control.diagnose import words
from surgetank.control.diagnose.facts import Facts
from surgetank.control.diagnose.hold import Cause, frozen, standstill
from surgetank.control.diagnose.limits import binding
from surgetank.control.diagnose.look import Look
from surgetank.telemetry.vocabulary import Outcome

LASTING = 0.5  # of the recent looks: somebody waits too long
LASTING_LOOKS = 6  # of the recent ones: three seconds
REFUSED = 0.05  # of the decisions
TELLING = 4  # looks, before their majority is believed
LATE = 0.1  # of the judged requests
FEW = 5  # refused or late ones that are no accident any more
AMPLIFIED = 1.5  # arrivals per first attempt
RETRIES = 10  # in the window: fewer are no storm
DISOBEYED = 0.5  # of the returns
PREDOMINANT = 0.4  # of the looks that tell
WASTE = 0.1  # of the computed tokens


class Verdict(StrEnum):
    """What stands in the way."""

    HEALTHY = "healthy"
    COMPUTE = "compute"
    MEMORY = "memory"
    SCHEDULING = "scheduling"
    LIMIT = "limit"
    CLIENTS = "clients"
    BACKEND = "backend"


class Slo(StrEnum):
    """A promise to look at alone."""

    TTFT = "ttft"
    TPOT = "tpot"
    AVAILABILITY = "availability"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer. `evidence`: lines with numbers; `next`: a command that can be pasted."""

    verdict: Verdict
    evidence: tuple[str, ...]
    next: str


def diagnose(looks: tuple[Look, ...], slo: Slo | None = None) -> Diagnosis:
    """The verdict on the newest of the looks (oldest first, at least one); `slo`: on that promise
    alone, healthy while it is kept."""
    facts = Facts.of(looks)
    for verdict, check in _CHECKS:
        if (found := check(facts, slo)) is not None:
            lines, then = found
            return Diagnosis(verdict, (*lines, *words.traffic(facts)), then)
    return Diagnosis(Verdict.HEALTHY, tuple(words.traffic(facts)), "surgetank top")


Found = tuple[list[str], str]  # evidence, and the next command


def _backend(facts: Facts, slo: Slo | None) -> Found | None:
    if not facts.now.backend_up:
        return [words.no_engine(facts)], "surgetank backends"
    if silent := standstill(facts.now) or frozen(facts.recent):
        return [words.stalled(facts, silent)], "surgetank stacks"
    if troubled(facts, slo) and _predominant(facts, Cause.STALL):
        return [words.stood(facts)], "surgetank backends"
    faults = facts.counts.outcomes[Outcome.INTERNAL] + facts.counts.outcomes[Outcome.BACKEND_DOWN]
    if faults >= FEW and faults > LATE * facts.counts.outcomes.total():
        return [words.faults(facts, faults)], "surgetank backends"
    return None


def _limit(facts: Facts, slo: Slo | None) -> Found | None:
    if facts.now.draining:
        return ["the service is draining: every new request is refused"], words.UNDRAIN
    hurt = troubled(facts, slo) or (slo is None and _predominant(facts, Cause.LIMIT))
    bound = binding(facts) if hurt else None
    return None if bound is None else ([words.limit(facts, bound)], words.widen(bound))


def _memory(facts: Facts, slo: Slo | None) -> Found | None:
    thrash = facts.waste > WASTE and slo is not Slo.AVAILABILITY
    short = troubled(facts, slo) and _predominant(facts, Cause.MEMORY)
    if not (thrash or short):
        return None
    return words.memory(facts), "surgetank memory"


def _clients(facts: Facts, slo: Slo | None) -> Found | None:
    if slo is not None and not troubled(facts, slo):
        return None
    if facts.flow.retries < RETRIES or facts.amplification <= AMPLIFIED:
        return None
    if facts.retries_lately < FEW:
        return None  # over
    if facts.demand > 1.0 and facts.disobeyed <= DISOBEYED:
        return None  # they wait as told: the load is real
    return words.storm(facts), "surgetank retries top"


def _scheduling(facts: Facts, slo: Slo | None) -> Found | None:
    if not troubled(facts, slo):
        return None
    if _predominant(facts, Cause.TOKEN_BUDGET):
        return [words.token_budget(facts)], words.more_tokens(facts)
    if _predominant(facts, Cause.DISPATCH):
        return [words.dispatch(facts)], "surgetank steps --slow"
    return None


def _compute(facts: Facts, slo: Slo | None) -> Found | None:
    return (words.compute(facts), words.SHED) if troubled(facts, slo) else None


_CHECKS: tuple[tuple[Verdict, Callable[[Facts, Slo | None], Found | None]], ...] = (
    (Verdict.BACKEND, _backend),
    (Verdict.LIMIT, _limit),
    (Verdict.MEMORY, _memory),
    (Verdict.CLIENTS, _clients),
    (Verdict.SCHEDULING, _scheduling),
    (Verdict.COMPUTE, _compute),
)


def troubled(facts: Facts, slo: Slo | None) -> bool:
    """Whether clients feel something; with `slo`, whether that promise is in danger."""
    waiting = facts.waiting >= max(TELLING, LASTING * len(facts.recent))
    refusing = (
        facts.refused >= FEW and facts.refused_share > REFUSED and facts.refusing >= LASTING_LOOKS
    )
    match slo:
        case None:
            return waiting or refusing or _late(facts, Slo.TTFT) or _late(facts, Slo.TPOT)
        case Slo.TTFT:
            return waiting or refusing or _late(facts, slo)
        case _:
            return _late(facts, slo)


def _late(facts: Facts, slo: Slo) -> bool:
    still = facts.lately.judged[slo, "bad"] > 0
    return still and facts.counts.judged[slo, "bad"] >= FEW and facts.late(slo) > LATE


def _predominant(facts: Facts, cause: Cause) -> bool:
    most = facts.causes.most_common(1)[0][0]
    return len(facts.telling) >= TELLING and most is cause and facts.share(cause) >= PREDOMINANT
