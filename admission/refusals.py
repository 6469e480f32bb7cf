"""The refusals that do not come from the gate's arithmetic, each with its sentence."""

from surgetank.admission.leases.quotas import Denied, Quota
from surgetank.admission.limits import Limit
from surgetank.admission.outcome import Refusal
from surgetank.admission.ticket import Ticket
from surgetank.engine.api import OUT_OF_MEMORY
from surgetank.engine.text.codec import TooLong
from surgetank.telemetry.vocabulary import FinishReason, Outcome, Priority, Reason


def draining() -> Refusal:
    """New work while the sidecar is on its way out."""
    return Refusal(Outcome.DRAINING, Reason.OPERATOR, "draining: no new requests are taken")


def backend_down(detail: str = "the engine is not connected") -> Refusal:
    """There is no engine, or it went away with the request in it."""
    return Refusal(Outcome.BACKEND_DOWN, Reason.ENGINE_LOST, f"backend down: {detail}")


def engines_lost(count: int) -> Refusal:
    """So many engines died while they worked on it."""
    message = (
        f"backend down: {count} engines were lost while they worked on this request, so it goes to "
        "no other; do not send it again"
    )
    return Refusal(Outcome.BACKEND_DOWN, Reason.ENGINES_LOST, message)


def drained(engines: str) -> Refusal:
    """An operator took every engine that is there out of rotation."""
    message = f"draining: no engine takes requests: {engines}"
    return Refusal(Outcome.DRAINING, Reason.OPERATOR, message)


def barred(why: str) -> Refusal:
    """Nobody whom we know asks."""
    return Refusal(Outcome.UNAUTHENTICATED, Reason.API_KEY, f"unauthenticated: {why}")


def token_ids_only() -> Refusal:
    """A door of text, before engines that neither take nor give any."""
    message = (
        "the engines behind this door take token ids alone: ask vllm.grpc.engine.VllmEngine on "
        "the gRPC port"
    )
    return Refusal(Outcome.NOT_FOUND, Reason.UNKNOWN_ROUTE, message)


def unknown_model(model: str, known: list[str]) -> Refusal:
    """Nobody serves that model here."""
    message = f"model {model[:100]!r} is not served here; available: {', '.join(known)}"
    return Refusal(Outcome.NOT_FOUND, Reason.UNKNOWN_MODEL, message, param="model")


def displaced() -> Refusal:
    """A sheddable request made room for a higher class."""
    message = "evicted: a request of a higher class took its place in the queue"
    return Refusal(Outcome.EVICTED, Reason.DISPLACED, message)


def queue_timeout(ticket: Ticket, longest: float, now: float) -> Refusal:
    """It waited as long as anything may."""
    waited = 0.0 if ticket.queued_at is None else now - ticket.queued_at
    return Refusal(
        Outcome.EXPIRED,
        Reason.QUEUE_TIMEOUT,
        f"expired: waited {waited:.2f} s; limit queue_wait is {longest:g} s",
        measured=waited,
        limit=longest,
        limit_name="queue_wait",
    )


def gives_way(ticket: Ticket, target: float, now: float) -> Refusal:
    """It waited too long for its class's target, or to be answered before its client leaves; others
    can still be in time."""
    waited, limit, name = now - ticket.arrived, target, "ttft_target"
    if waited + ticket.estimate.prefill <= target and ticket.due is not None:
        limit, name = ticket.due - ticket.arrived, "deadline"
    return Refusal(
        Outcome.EXPIRED,
        Reason.QUEUE_TIMEOUT,
        f"expired: waited {waited:.2f} s; {name} of {limit:.2f} s cannot be met, others go first",
        measured=waited,
        limit=limit,
        limit_name=name,
    )


def deadline_in_queue(ticket: Ticket, now: float) -> Refusal:
    """The client gave up while the request waited; it was never sent to the engine."""
    return _late(ticket, now, Outcome.EXPIRED, Reason.DEADLINE_IN_QUEUE, "in the queue")


def deadline_in_decode(ticket: Ticket, now: float) -> Refusal:
    """The client gave up while the engine had the request."""
    return _late(ticket, now, Outcome.DEADLINE, Reason.DEADLINE_IN_DECODE, "in the engine")


def _late(ticket: Ticket, now: float, outcome: Outcome, reason: Reason, where: str) -> Refusal:
    spent = now - ticket.arrived
    allowed = spent if (due := ticket.due) is None else due - ticket.arrived
    return Refusal(
        outcome,
        reason,
        f"deadline: it passed {where}, {spent:.2f} s after arrival; allowed were {allowed:.2f} s",
        measured=spent,
        limit=allowed,
        limit_name="deadline",
    )


def cancelled(outcome: Outcome, reason: Reason) -> Refusal:
    """A door or an operator ended it."""
    return Refusal(outcome, reason, f"{outcome}: ended early ({reason})")


def fault() -> Refusal:
    """A defect of ours; the log has the traceback."""
    return Refusal(Outcome.INTERNAL, Reason.BUG, "internal error; the log has the details")


def by_engine(finish: FinishReason, detail: str, ticket: Ticket, now: float) -> Refusal:
    """The engine ended it, other than by finishing: `finish` says how, `detail` why."""
    match finish:
        case FinishReason.DEADLINE:
            return deadline_in_decode(ticket, now)
        case FinishReason.REFUSED | FinishReason.ERROR if detail.startswith(OUT_OF_MEMORY):
            return Refusal(Outcome.OVERLOAD, Reason.OUT_OF_MEMORY, f"engine: {detail}")
        case FinishReason.REFUSED:
            message = f"the engine refused the request: {detail}"
            return Refusal(Outcome.INVALID, Reason.ENGINE_REFUSED, message)
        case FinishReason.CANCELLED:
            return backend_down("the engine gave the request up")
        case _:
            return Refusal(Outcome.INTERNAL, Reason.BUG, f"engine error: {detail}")


def pushback(status: int) -> Refusal:
    """An engine of another maker says by its status that it is full."""
    message = f"overloaded: the engine takes no more requests now (it answered {status})"
    return Refusal(Outcome.OVERLOAD, Reason.ENGINE_FULL, message)


def by_backend(status: int) -> Refusal:
    """What an engine's own status means; the client has its whole answer."""
    message = f"the engine answered {status}"
    if status < 500:
        return Refusal(Outcome.INVALID, Reason.ENGINE_REFUSED, message)
    return Refusal(Outcome.INTERNAL, Reason.ENGINE_ERROR, message)


_OVER = {
    Reason.NEVER_FITS_SLOTS: "n: {measured:.10g} choices asked for",
    Reason.NEVER_FITS_CONTEXT: "request: {measured:.10g} tokens asked for",
    Reason.NEVER_FITS_KV: "request: {measured:.10g} KV blocks needed",
    Reason.NEVER_FITS_QUEUE: "request: larger than the whole queue ({measured:.10g})",
    Reason.QUEUE_REQUESTS: "overloaded: {measured:.10g} requests would wait",
    Reason.QUEUE_TOKENS: "overloaded: {measured:.10g} prompt tokens would wait",
    Reason.IN_FLIGHT: "overloaded: {measured:.10g} requests would be in flight",
    Reason.KV_PRESSURE: "overloaded: {measured:.4g} of the KV memory is taken",
    Reason.RETRY_BUDGET: "retry: it would cost {measured:.4g} engine-seconds",
}


def over(
    outcome: Outcome,
    reason: Reason,
    measured: float,
    limit: float,
    name: str,
    param: str | None = None,
) -> Refusal:
    """Something was measured that a limit does not allow."""
    what = _OVER[reason].format(measured=measured)
    return Refusal(
        outcome,
        reason,
        f"{what}; limit {name} is {limit:.10g}",
        measured=measured,
        limit=limit,
        limit_name=str(name),
        param=param,
    )


def held_back(priority: Priority, lowest: float) -> Refusal:
    """In a brown-out or a recovery, whole classes wait outside."""
    message = (
        f"overloaded: for now only {Priority(round(lowest)).label} requests and what is above "
        f"them are served, this one is {priority.label}"
    )
    name = Limit.LOWEST_CLASS
    return Refusal(Outcome.OVERLOAD, Reason.BROWN_OUT, message, priority, lowest, str(name))


def thinned(priority: Priority, share: float, name: Limit) -> Refusal:
    """In a brown-out or a recovery, a share of the requests is let in; limit `name` says which."""
    message = f"overloaded: for now {share:.0%} of the {priority.label} requests are let in"
    return Refusal(Outcome.OVERLOAD, Reason.BROWN_OUT, message, 1.0, share, str(name))


def quota(denied: Denied) -> Refusal:
    """A limit that all sidecars share, of which this one's part is used up."""
    if denied.limit is Quota.RETRIES:
        outcome, reason = Outcome.RETRY_BUDGET, Reason.RETRY_BUDGET
        return over(outcome, reason, denied.measured, denied.allowed, "retry_budget_fleet")
    return Refusal(
        Outcome.QUOTA,
        Reason.TENANT_QUOTA,
        f"quota: {denied.measured:.10g} together with this request; this sidecar's part of "
        f"{denied.limit} allows {denied.allowed:.10g} at once",
        measured=denied.measured,
        limit=denied.allowed,
        limit_name=str(denied.limit),
    )


def too_slow(needed: float, left: float) -> Refusal:
    """Not even an idle engine makes it in time."""
    message = f"deadline: {left:.3f} s are left; this request takes at least {needed:.3f} s"
    return Refusal(
        Outcome.INFEASIBLE,
        Reason.DEADLINE_ON_ARRIVAL,
        message,
        measured=needed,
        limit=left,
        limit_name="deadline",
    )


def long_wait(wait: float, limit: float, *, by_deadline: bool, binding: str) -> Refusal:
    """It would wait longer than its target or its caller's deadline allows."""
    name = "deadline" if by_deadline else "wait_threshold"
    message = f"overloaded: the wait would be {wait:.2f} s (mostly {binding}); {name} allows"
    return Refusal(
        Outcome.OVERLOAD,
        Reason.PREDICTED_WAIT,
        f"{message} {limit:.2f} s",
        measured=wait,
        limit=limit,
        limit_name=name,
    )


def too_long(error: TooLong) -> Refusal:
    """A prompt that is longer than the context, as its length in characters tells."""
    return Refusal(
        Outcome.INVALID,
        Reason.NEVER_FITS_CONTEXT,
        f"prompt: at least {error.fewest} tokens; limit context_length is {error.most}",
        measured=error.fewest,
        limit=error.most,
        limit_name="context_length",
    )
