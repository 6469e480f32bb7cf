"""How each answer about the running service is read from its parts: pure functions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from surgetank.admission.limits import Limit
from surgetank.admission.snapshot import DeskSnapshot, Ended
from surgetank.admission.ticket import Ticket
from surgetank.control.diagnose.facts import Facts, dropped
from surgetank.control.diagnose.look import Look
from surgetank.control.diagnose.verdict import Diagnosis
from surgetank.control.insight.shapes import (
    DiagnosisOut,
    LevelOut,
    QueueOut,
    ReasonOut,
    ReasonsOut,
    RetrierOut,
    RetriesOut,
    TopOut,
    WaitingOut,
)
from surgetank.telemetry.recorder import Recorder
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority

HASH = 12  # hexadecimal digits of a fingerprint that are shown; its key never leaves the process


def diagnosis_out(found: Diagnosis) -> DiagnosisOut:
    """As JSON."""
    return DiagnosisOut(verdict=found.verdict, evidence=list(found.evidence), next=found.next)


def levels_out(desk: DeskSnapshot) -> list[LevelOut]:
    """Every class."""
    return [
        LevelOut(
            priority=level.priority.label,
            first=level.requests[Lane.FIRST],
            retries=level.requests[Lane.RETRY],
            tokens=level.tokens,
            oldest_age=level.oldest_age,
        )
        for level in desk.queue
    ]


def queue_out(desk: DeskSnapshot, live: Sequence[Ticket], most: int, *, running: bool) -> QueueOut:
    """At most `most` of those that wait, or of all that live."""
    wanted = [each for each in live if running or each.dispatched_at is None]
    return QueueOut(
        total=len(wanted),
        levels=levels_out(desk),
        requests=[_waiting(each, desk.at) for each in wanted[:most]],
    )


def _waiting(ticket: Ticket, now: float) -> WaitingOut:
    return WaitingOut(
        id=ticket.id,
        state="queued" if ticket.dispatched_at is None else "running",
        priority=ticket.priority.label,
        lane=ticket.lane,
        attempt=ticket.attempt,
        tenant=ticket.tenant,
        door=ticket.door,
        prompt_tokens=ticket.prompt_tokens,
        output_tokens=ticket.output_tokens,
        cost=ticket.estimate.seconds,
        age=now - ticket.arrived,
        left=ticket.time_left(now),
    )


def retries_out(
    looks: tuple[Look, ...], recorder: Recorder, tickets: Iterable[Ticket], most: int
) -> RetriesOut:
    """The fingerprints with the most retries first."""
    facts = Facts.of(looks)
    by_attempt, by_header = Counter[str](), Counter[str]()
    arrivals = recorder.registry.counter("retry_arrivals_total").children()
    for (attempt, header), child in arrivals.items():
        if child.value:
            by_attempt[attempt] += int(child.value)
            by_header[header] += int(child.value)
    return RetriesOut(
        seconds=facts.seconds,
        first=facts.flow.first,
        retries=facts.flow.retries,
        amplification=facts.amplification if facts.flow.first else None,
        returned={
            advice: facts.counts.returned[advice] for advice in ("obeyed", "ignored", "none")
        },
        budget=facts.now.retry_budget,
        rate=facts.now.view(Limit.RETRY_SHARE).current,
        by_attempt=dict(by_attempt),
        by_header=dict(by_header),
        top=_retriers(tickets)[:most],
    )


def _retriers(tickets: Iterable[Ticket]) -> list[RetrierOut]:
    def key(ticket: Ticket) -> tuple[bytes, str, int]:
        return ticket.fingerprint, ticket.tenant, ticket.priority

    found = []
    groups = groupby(sorted((each for each in tickets if each.fingerprint), key=key), key)
    for (fingerprint, tenant, priority), group in groups:
        members = list(group)
        retries = [each for each in members if each.lane is Lane.RETRY]
        if not retries:
            continue
        newest = max(retries, key=lambda each: each.attempt)
        found.append(
            RetrierOut(
                fingerprint=fingerprint.hex()[:HASH],
                tenant=tenant,
                priority=Priority(priority).label,
                retries=len(retries),
                highest_attempt=newest.attempt,
                detected_by=newest.detected_by,
                outcomes=dict(Counter(str(each.outcome or "live") for each in members)),
            )
        )
    return sorted(found, key=lambda each: (-each.retries, each.fingerprint))


def reasons_out(ended: Sequence[Ended], now: float) -> ReasonsOut:
    """The most frequent first."""
    table: dict[tuple[str, str], Counter[str]] = {}
    for each in ended:
        ticket = each.ticket
        key = (str(ticket.outcome or Outcome.INTERNAL), str(ticket.reason))
        table.setdefault(key, Counter())[ticket.priority.label] += 1
    oldest = ended[0].ticket.ended_at if ended else None
    rows = sorted(table.items(), key=lambda row: -row[1].total())
    return ReasonsOut(
        requests=len(ended),
        seconds=0.0 if oldest is None else now - oldest,
        reasons=[
            ReasonOut(outcome=outcome, reason=reason, total=by.total(), by_class=dict(by))
            for (outcome, reason), by in rows
        ],
    )


def top_out(looks: tuple[Look, ...], found: Diagnosis, uptime: float) -> TopOut:
    """From the looks of the last ten seconds."""
    facts = Facts.of(looks)
    desk, laws, lately = facts.now, facts.now.laws, facts.lately
    first = facts.recent[0].desk
    seconds = max(1e-3, desk.at - first.at)
    flow = desk.flow.since(first.flow)
    return TopOut(
        uptime=uptime,
        model=desk.model,
        draining=desk.draining,
        diagnosis=diagnosis_out(found),
        seconds=seconds,
        first=flow.first / seconds,
        retries=flow.retries / seconds,
        served=lately.outcomes[Outcome.OK] / seconds,
        dropped=dropped(lately) / seconds,
        output_tokens=lately.output_tokens / seconds,
        levels=levels_out(desk),
        oldest_age=desk.queue_oldest_age,
        wait=None if laws.wait is None else laws.wait.seconds,
        threshold=laws.threshold,
        running=desk.dispatched_seqs,
        slots=desk.slots,
        kv=laws.kv_used,
        step_seconds=facts.step,
        tpot_target=desk.tpot_target,
        speed=laws.drain,
        brownout=int(desk.view(Limit.BROWNOUT_LEVEL).current),
        overrides={str(view.name): view.current for view in desk.limits if view.override},
        outcomes={str(key): n for key, n in looks[-1].counts.outcomes.items() if n},
    )
