"""One request's story: each stage's time, the decision and what it rested on, and what if now."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from pydantic import BaseModel, Field

from surgetank.admission.outcome import Refusal
from surgetank.admission.peek import WhatIf
from surgetank.admission.snapshot import Ended
from surgetank.admission.ticket import MOVED, Ticket
from surgetank.admission.wait import Wait
from surgetank.telemetry.vocabulary import Outcome, Priority


class UnknownRequest(LookupError):
    """No such request is live or remembered; str() is the sentence."""


class Known(StrEnum):
    """How a number of tokens is known."""

    EXACT = "exact"  # counted here
    TOLD = "told"  # by the engine, in its usage
    EVENTS = "events"  # of a stream whose usage did not come, about one a token
    ESTIMATED = "estimated"  # by the prompt's characters


class StageOut(BaseModel):
    """A part of the request's life; `running` when it has not ended."""

    stage: str
    seconds: float
    running: bool = False


class WaitOut(BaseModel):
    """A predicted wait and its terms, seconds."""

    total: float
    slot: float
    prefill: float
    age: float
    gamma: float
    binding: str


class DecisionOut(BaseModel):
    """What the gate, or whoever ended it, decided."""

    admitted: bool
    outcome: str | None = Field(description="null while it lives")
    reason: str
    message: str = Field(description="the sentence that its client got")
    measured: float | None
    limit: float | None
    limit_name: str
    retry_after: float | None = Field(description="seconds advised; null: do not retry, or served")


class FoundOut(BaseModel):
    """The queue and the engine at its arrival."""

    queued: int
    queued_tokens: int
    ahead: int
    running: int
    kv_promised: float
    threshold: float
    predicted: WaitOut | None


class WhatIfOut(BaseModel):
    """The same request, now, in one class; `admitted` as far as the wait decides."""

    priority: str
    wait: WaitOut | None
    threshold: float
    admitted: bool | None


class ExplainOut(BaseModel):
    """Everything that is known of one request. No prompt text."""

    id: str
    trace_id: str = Field(description="of its trace, kept or not; empty: it belongs to none")
    state: str = Field(description="queued, running, served, refused or ended otherwise")
    sentence: str
    same_id: int = Field(description="how many known requests have that id; this is the newest")
    door: str
    tenant: str
    priority: str
    lane: str
    attempt: int
    detected_by: str
    model: str
    backend: str = Field(description="the engine that it went to last; empty: to none yet")
    moved_from: list[str] = Field(description="engines that were lost or turned it away, in order")
    prompt_tokens: int
    prompt_known: Known
    cached_tokens: int | None = Field(description="null: its engine has not told")
    max_tokens: int
    choices: int
    output_tokens: int
    output_known: Known
    estimated_prompt: int = Field(description="what the gate reckoned with")
    estimated_output: float
    estimated_seconds: float = Field(description="engine-seconds that it was expected to cost")
    age: float = Field(description="seconds since it arrived")
    total: float = Field(description="seconds from its arrival to its end, or to now")
    stages: list[StageOut]
    events: list[tuple[float, str]] = Field(description="seconds after arrival, and what happened")
    decision: DecisionOut
    found: FoundOut | None = Field(description="null: it ended before it came to the gate")
    what_if: list[WhatIfOut] = Field(description="empty without an engine")


def explain(
    request_id: str,
    *,
    live: Sequence[Ticket],
    ended: Sequence[Ended],
    what_if: Callable[[Ticket, Priority], WhatIf | None],
    now: float,
) -> ExplainOut:
    """The newest request of that id; raises UnknownRequest."""
    refusals = {each.ticket: each.refusal for each in ended if each.ticket.id == request_id}
    known = [*refusals, *(ticket for ticket in live if ticket.id == request_id)]
    if not known:
        raise UnknownRequest(
            f"no request {request_id!r} is in flight or among the last {len(ended)} that ended"
        )
    ticket = max(known, key=lambda each: each.arrived)
    return _explain(ticket, refusals.get(ticket), len(known), _whatifs(ticket, what_if), now)


def _explain(
    ticket: Ticket, refusal: Refusal | None, same_id: int, what_if: list[WhatIfOut], now: float
) -> ExplainOut:
    end = now if ticket.ended_at is None else ticket.ended_at
    told = stages(ticket, now)
    return ExplainOut(
        id=ticket.id,
        trace_id="" if ticket.trace is None else ticket.trace.id.trace,
        state=state(ticket),
        sentence=_sentence(ticket, refusal, told, end - ticket.arrived),
        same_id=same_id,
        door=ticket.door,
        tenant=ticket.tenant,
        priority=ticket.priority.label,
        lane=ticket.lane,
        attempt=ticket.attempt,
        detected_by=ticket.detected_by,
        model=ticket.model,
        backend=ticket.engine,
        moved_from=list(ticket.turned_away),
        prompt_tokens=ticket.input_tokens,
        prompt_known=_prompt_known(ticket),
        cached_tokens=_cached(ticket),
        max_tokens=ticket.max_tokens,
        choices=ticket.n,
        output_tokens=ticket.output_tokens,
        output_known=_output_known(ticket),
        estimated_prompt=ticket.prompt_tokens,
        estimated_output=ticket.estimate.output,
        estimated_seconds=ticket.estimate.seconds,
        age=now - ticket.arrived,
        total=end - ticket.arrived,
        stages=told,
        events=[(at - ticket.arrived, what) for at, what in ticket.events],
        decision=_decision(ticket, refusal),
        found=_found(ticket),
        what_if=what_if,
    )


def _prompt_known(ticket: Ticket) -> Known:
    if ticket.told is not None and ticket.told.prompt_tokens is not None:
        return Known.TOLD
    return Known.ESTIMATED if ticket.estimated else Known.EXACT


def _output_known(ticket: Ticket) -> Known:
    if ticket.told is None:
        return Known.EXACT
    return Known.EVENTS if ticket.told.output_tokens is None else Known.TOLD


def _cached(ticket: Ticket) -> int | None:
    untold = ticket.told is not None and ticket.told.cached_tokens is None
    return None if untold else ticket.cached_tokens


def state(ticket: Ticket) -> str:
    """Where it is, in a word."""
    if ticket.outcome is not None:
        if ticket.outcome is Outcome.OK:
            return "served"
        return "refused" if ticket.queued_at is None else "ended"
    return "queued" if ticket.dispatched_at is None else "running"


def stages(ticket: Ticket, now: float) -> list[StageOut]:
    """Consecutive parts of its life, which add up to the whole of it so far."""
    sent, events = ticket.dispatched_at or 0.0, ticket.events
    started = next((at for at, what in events if what == "started" and at >= sent), None)
    marks = (
        ("door and gate", ticket.queued_at),
        *_waits(ticket),
        ("first step", started),
        ("rest of prefill", ticket.first_token_at),
        ("decode", ticket.last_token_at if ticket.ended_at is not None else None),
        ("last words", ticket.ended_at),
    )
    told, since = [], ticket.arrived
    last = ticket.ended_at
    for stage, until in marks:
        if until is None:
            end = now if last is None else last
            told.append(StageOut(stage=stage, seconds=end - since, running=last is None))
            return told
        told.append(StageOut(stage=stage, seconds=until - since))
        since = until
    return told


def _waits(ticket: Ticket) -> Iterator[tuple[str, float | None]]:
    """Its time in the queue, and if it moved, each time there and in an engine that lost it."""
    queue, left = "queue", iter(ticket.turned_away)
    for at, what in ticket.events if ticket.turned_away else ():
        if what == "dispatched":
            yield queue, at
        elif what.startswith(MOVED):
            yield f"in {next(left)}, in vain", at
            queue = "queue again"
    if not ticket.turned_away or ticket.dispatched_at is None:
        yield queue, ticket.dispatched_at


def _sentence(ticket: Ticket, refusal: Refusal | None, told: list[StageOut], total: float) -> str:
    longest = max(told, key=lambda stage: stage.seconds)
    mostly = f"{longest.seconds:.2f} s of it in {longest.stage}"
    match state(ticket):
        case "served":
            return f"served in {total:.2f} s, {mostly}"
        case "refused" | "ended":
            said = refusal.message if refusal is not None else str(ticket.reason)
            return f"{ticket.outcome} ({ticket.reason}) after {total:.2f} s: {said}"
        case other:
            return f"{other} for {told[-1].seconds:.2f} s; {total:.2f} s old, {mostly}"


def _decision(ticket: Ticket, refusal: Refusal | None) -> DecisionOut:
    return DecisionOut(
        admitted=ticket.queued_at is not None,
        outcome=ticket.outcome,
        reason=ticket.reason,
        message="" if refusal is None else refusal.message,
        measured=None if refusal is None else refusal.measured,
        limit=None if refusal is None else refusal.limit,
        limit_name="" if refusal is None else refusal.limit_name,
        retry_after=None if refusal is None else refusal.retry_after,
    )


def _found(ticket: Ticket) -> FoundOut | None:
    found = ticket.found
    if found is None:
        return None
    return FoundOut(
        queued=found.queued,
        queued_tokens=found.tokens,
        ahead=found.ahead,
        running=found.running,
        kv_promised=found.kv,
        threshold=found.threshold,
        predicted=_wait_out(ticket.wait),
    )


def _whatifs(
    ticket: Ticket, what_if: Callable[[Ticket, Priority], WhatIf | None]
) -> list[WhatIfOut]:
    told = []
    for priority in Priority:
        answer = what_if(ticket, priority)
        if answer is not None:
            wait = answer.wait
            told.append(
                WhatIfOut(
                    priority=priority.label,
                    wait=_wait_out(wait),
                    threshold=answer.threshold,
                    admitted=None if wait is None else wait.seconds <= answer.threshold,
                )
            )
    return told


def _wait_out(wait: Wait | None) -> WaitOut | None:
    if wait is None:
        return None
    return WaitOut(
        total=wait.seconds,
        slot=wait.slot,
        prefill=wait.prefill,
        age=wait.age,
        gamma=wait.gamma,
        binding=wait.binding,
    )
