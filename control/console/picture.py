"""How each part of a frame is read from a look at the service; pure functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from surgetank.admission.limits import Override
from surgetank.admission.routing.side import TAKING, Why
from surgetank.admission.snapshot import DeskSnapshot, Ended
from surgetank.control.console import frame
from surgetank.control.console.tally import Rates
from surgetank.control.diagnose.facts import RECENT
from surgetank.control.diagnose.hold import frozen, standstill
from surgetank.control.diagnose.look import Look
from surgetank.control.diagnose.verdict import diagnose
from surgetank.control.drain import Hold
from surgetank.telemetry.vocabulary import Lane, Outcome, SlotState
from surgetank.telemetry.window import QuantileWindow

IDLE = 10.0  # seconds without an arrival, and nothing in flight
SHOWN = 9  # refusals


def state(looks: Sequence[Look], idle_for: float) -> str:
    """The service's state in one word, by the newest of the looks."""
    desk = looks[-1].desk
    if desk.draining:
        return "draining"
    if not desk.backend_up:
        return "backend_down"
    if standstill(desk) or frozen([look for look in looks if desk.at - look.desk.at <= RECENT]):
        return "stalled"
    return "idle" if idle_for >= IDLE and not desk.in_flight else "ready"


def verdict(looks: tuple[Look, ...]) -> frame.Verdict:
    """What stands in the way."""
    found = diagnose(looks)
    return frame.Verdict(found.verdict.value, found.evidence, found.next)


def hold(held: Hold | None, now: float) -> frame.Hold | None:
    """Who drains."""
    if held is None:
        return None
    left = None if held.until is None else max(0.0, held.until - now)
    return frame.Hold(held.who, held.why, left)


def arrivals(rates: Rates) -> frame.Arrivals:
    """By lane."""
    return frame.Arrivals(
        first=rates.per_second(rates.flow.first),
        retry=rates.per_second(rates.flow.retries),
        unread=rates.unread,
    )


def gate(rates: Rates) -> frame.Gate:
    """Its decisions."""
    return frame.Gate(
        admitted=rates.per_second(rates.counts.admitted),
        refused=rates.per_second(rates.counts.refused.total()),
        reasons=rates.reasons(),
    )


def queue(desk: DeskSnapshot) -> frame.Waiting:
    """Who waits, and how long a newcomer would."""
    wait = desk.laws.wait
    return frame.Waiting(
        levels=tuple(
            frame.Level(
                priority=level.priority.label,
                first=level.requests[Lane.FIRST],
                retry=level.requests[Lane.RETRY],
                tokens=level.tokens,
                oldest=level.oldest_age,
            )
            for level in desk.queue
        ),
        requests=desk.queue_requests,
        tokens=desk.queue_tokens,
        oldest=desk.queue_oldest_age,
        wait=None if wait is None else frame.Wait(wait.seconds, wait.binding),
        threshold=desk.laws.threshold,
        bound=desk.laws.queue_bound,
    )


def steps(seconds: QuantileWindow, target: float) -> frame.Steps | None:
    """None while there were none of late."""
    p50, p99 = seconds.quantile(0.5), seconds.quantile(0.99)
    return None if p50 is None or p99 is None else frame.Steps(p50, p99, target)


def engine(look: Look, rates: Rates, took: frame.Steps | None) -> frame.Engine:
    """The batches now, and their slots of late."""
    desk = look.desk
    last = [(each, each.last_step) for each in desk.there if each.last_step is not None]
    taking = (each for each in desk.there if each.state in TAKING)
    return frame.Engine(
        running=sum(min(each.dispatched_seqs, sum(step.running)) for each, step in last),
        most=int(sum(each.slots for each in taking)),
        waiting=sum(sum(step.waiting) for _, step in last),
        slots={slot.value: share for slot, share in zip(SlotState, rates.slots())},
        held=None if look.held is None else look.held.value,
        steps=took,
        prefill=rates.per_second(rates.steps.prefill),
        decode=rates.per_second(rates.steps.decode),
        silent=desk.stalled_for,
    )


def engines(desk: DeskSnapshot, holds: Mapping[str, Hold]) -> tuple[frame.EngineLine, ...]:
    """Each of them; `holds`: who drains which."""
    return tuple(
        frame.EngineLine(
            name=look.name,
            maker=look.vitals.kind,
            role=look.role.value,
            state=look.state.value,
            since=desk.at - look.since,
            back_in=None if look.back_at is None else look.back_at - desk.at,
            running=look.dispatched_seqs,
            slots=int(look.slots),
            wait=look.wait,
            kv=look.kv_promised if look.kv_used is None else look.kv_used,
            requests=sum(look.routed.values()),
            affine=look.routed.get(Why.AFFINITY, 0),
            moved=look.moved_away,
            ejections=look.ejections,
            drain=hold(holds.get(look.name), desk.at),
        )
        for look in desk.engines
    )


def kv(desk: DeskSnapshot) -> frame.Kv | None:
    """The pools after the newest steps; empty before the first."""
    blocks = desk.kv_blocks
    if blocks is None:
        return None
    steps = [each.last_step for each in desk.there if each.last_step is not None]
    used, cached = sum(step.kv_used for step in steps), sum(step.kv_cached for step in steps)
    return frame.Kv(used, cached, blocks - used - cached, desk.kv_blocks_reserved, blocks)


def outcomes(rates: Rates) -> dict[str, float]:
    """Those that there were, as rates."""
    return {
        outcome.value: rates.outcome(outcome)
        for outcome in Outcome
        if rates.counts.outcomes[outcome]
    }


def limits(desk: DeskSnapshot) -> tuple[frame.LimitLine, ...]:
    """All of them."""
    lines = []
    for view in desk.limits:
        lines.append(
            frame.LimitLine(
                name=view.name.value,
                value=view.current,
                base=min(view.base, view.maximum),
                minimum=view.minimum,
                maximum=view.maximum,
                unit=view.unit,
                meaning=view.help,
                usage=desk.limit_usage.get(view.name.value),
                override=_override(view.override, desk.at),
            )
        )
    return tuple(lines)


def _override(held: Override | None, now: float) -> frame.Override | None:
    if held is None:
        return None
    return frame.Override(held.who, held.why, max(0.0, held.until - now))


def refusals(ended: Iterable[Ended], wall: float, now: float) -> tuple[frame.Refused, ...]:
    """The newest that were not served, from those that ended (newest first); `wall` is `now` on
    the clock that people read. Clients that went away are left out: nobody refused them."""
    return tuple(islice(_refusals(ended, wall - now), SHOWN))


def _refusals(ended: Iterable[Ended], offset: float) -> Iterator[frame.Refused]:
    for each in ended:
        ticket, refusal = each.ticket, each.refusal
        if refusal is None or refusal.outcome is Outcome.CANCELLED:
            continue
        yield frame.Refused(
            at=(ticket.arrived if ticket.ended_at is None else ticket.ended_at) + offset,
            id=ticket.id,
            priority=ticket.priority.label,
            lane=ticket.lane.value,
            outcome=refusal.outcome.value,
            reason=refusal.reason.value,
            measured=refusal.measured,
            limit=refusal.limit,
            limit_name=refusal.limit_name,
            hint=refusal.retry_after,
            message=refusal.message,
        )


def point(
    wall: float,
    rates: Rates,
    waiting: frame.Waiting,
    took: frame.Steps | None,
    pool: frame.Kv | None,
) -> frame.Point:
    """The charts' next second; rounded, because sixty hundred of them are sent at once."""
    return frame.Point(
        at=round(wall, 1),
        arrivals=round(rates.arrivals, 2),
        retry=round(rates.per_second(rates.flow.retries), 2),
        good=round(rates.outcome(Outcome.OK), 2),
        refused=round(rates.failed, 2),
        wait=None if waiting.wait is None else round(waiting.wait.seconds, 3),
        threshold=round(waiting.threshold, 3),
        oldest=None if waiting.oldest is None else round(waiting.oldest, 3),
        p50=None if took is None else round(took.p50, 5),
        p99=None if took is None else round(took.p99, 5),
        kv_used=None if pool is None else round(pool.used / pool.blocks, 4),
        kv_cached=None if pool is None else round(pool.cached / pool.blocks, 4),
    )
