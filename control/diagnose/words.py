"""How evidence reads, and which command goes on from each verdict."""

from collections.abc import Iterator

from surgetank.admission.limits import Limit
from surgetank.admission.routing.side import TAKING, SideState
from surgetank.admission.snapshot import EngineLook
from surgetank.control.diagnose.facts import Facts
from surgetank.control.diagnose.hold import SHORT, SILENT_COLD, Cause
from surgetank.control.diagnose.limits import Binding
from surgetank.telemetry.vocabulary import Outcome

UNDRAIN = 'surgetank undrain --why "diagnose: it refuses everything" --dry-run'
SHED = 'surgetank shed --below default --ttl 10m --why "diagnose: compute" --dry-run'


def traffic(facts: Facts) -> Iterator[str]:
    """What goes in and how it fares, whatever the verdict."""
    now, seconds = facts.now, facts.seconds
    yield (
        f"over {seconds:.0f} s: first attempts {facts.flow.first / seconds:.1f}/s, retries "
        f"{facts.flow.retries / seconds:.1f}/s, served {facts.counts.outcomes[Outcome.OK]}, "
        f"refused or dropped for load {facts.refused} ({facts.refused_share:.0%})"
    )
    age = now.queue_oldest_age
    waiting = (
        "nobody waits" if age is None else f"{now.queue_requests} wait, the oldest {age:.2f} s"
    )
    yield f"{waiting}; an average request may wait {now.laws.threshold:.2f} s{_predicted(facts)}"
    for slo, what in (("ttft", "first token"), ("tpot", "pace of tokens")):
        bad, good = facts.counts.judged[slo, "bad"], facts.counts.judged[slo, "good"]
        if bad:
            yield f"{what} too late for {bad} of {bad + good} requests"
    if now.backend_up:
        yield _engine(facts)
        yield from _left_out(facts)


def _predicted(facts: Facts) -> str:
    wait = facts.now.laws.wait
    return "" if wait is None else f", would wait {wait.seconds:.2f} s ({wait.binding})"


def _engine(facts: Facts) -> str:
    now, step = facts.now, facts.step
    said = f"engine: {now.dispatched_seqs} of {now.slots} slots"
    if now.laws.kv_used is not None:
        said += f", KV {now.laws.kv_used:.0%}"
    if step is not None:
        said += f", newest step {step * 1e3:.0f} ms (target {now.tpot_target * 1e3:.0f} ms)"
    return said


def _left_out(facts: Facts) -> Iterator[str]:
    """Of several engines, those that could get requests and do not, or stand still."""
    engines = [each for each in facts.now.engines if each.state is not SideState.PREFILL_ONLY]
    out = [f"{each.name} is {_state(each)}" for each in engines if each.state not in TAKING]
    if out:
        taking = len(engines) - len(out)
        yield f"engines: {taking} of {len(engines)} get requests; {', '.join(out)}"
    if len(engines) > 1:
        for each in engines:
            if (each.stalled_for or 0.0) > SILENT_COLD:
                yield f"{each.name} has work and makes no step for {each.stalled_for:.0f} s"


def _state(engine: EngineLook) -> str:
    return engine.state.replace("_", " ")


def no_engine(facts: Facts) -> str:
    """None is connected, or none gets requests."""
    lost = facts.counts.outcomes[Outcome.BACKEND_DOWN]
    told = f"{lost} requests were refused or lost for it"
    engines = facts.now.engines
    if len(engines) == 1 and engines[0].card is None:
        return f"the engine is not connected; {told}"
    states = ", ".join(f"{each.name} is {_state(each)}" for each in engines)
    return f"no engine gets requests: {states}; {told}"


def stalled(facts: Facts, silent: float) -> str:
    """It stands."""
    gone = facts.lately.outcomes[Outcome.CANCELLED]
    return (
        f"the engine has {facts.now.dispatched_seqs} sequences and has made no step for "
        f"{silent:.1f} s; {gone} clients gave up meanwhile"
    )


def stood(facts: Facts) -> str:
    """It moves again."""
    return (
        f"the engine was away or stood still at {facts.causes[Cause.STALL]} of "
        f"{facts.causes.total()} looks; it steps again"
    )


def faults(facts: Facts, count: int) -> str:
    """It answers with errors."""
    return (
        f"{count} of {facts.counts.outcomes.total()} requests ended as internal or backend_down "
        f"in {facts.seconds:.0f} s"
    )


def limit(facts: Facts, bound: Binding) -> str:
    """Which limit, who set it, and how often it bound."""
    view = bound.view
    said = f"limit {view.name} is {view.current:g} {view.unit}"
    if view.override is not None:
        left = view.override.until - facts.now.at
        said += (
            f", set by {view.override.who} ({view.override.why}) for {left:.0f} s more; "
            f"without that it is {min(view.base, view.maximum):g}"
        )
    else:
        said += f"; it may be {view.minimum:g} to {view.maximum:g}"
    if bound.looks:
        return f"{said}: it kept work out at {bound.looks} of {bound.of_looks} looks"
    return f"{said}: {bound.refused} requests were refused for {bound.reason}"


def widen(bound: Binding) -> str:
    """Take the override away; a configured limit may be tried wider for a while."""
    view = bound.view
    why = '--why "diagnose: it holds work back"'
    if view.override is not None:
        return f"surgetank limits clear {view.name} {why} --dry-run"
    wider = min(view.maximum, max(2 * view.current, view.current + 1))
    return f"surgetank limits set {view.name} {wider:g} --ttl 10m {why} --dry-run"


def memory(facts: Facts) -> list[str]:
    """Who has the pool."""
    now = facts.now
    lines = []
    if facts.causes[Cause.MEMORY]:
        looks = f"{facts.causes[Cause.MEMORY]} of {facts.causes.total()} looks"
        used = now.laws.kv_used or 0.0
        much = (
            f"{used:.0%}"
            if now.kv_usable is None
            else f"{used * now.kv_usable:.0f} of {now.kv_usable} blocks"
        )
        lines.append(
            f"KV memory kept the next request out at {looks}: {much} are promised or used, "
            f"{now.view(Limit.KV_RESERVE).current:.0%} may be"
        )
    if facts.flow.preempted:
        lines.append(
            f"{facts.flow.preempted} tokens ({facts.waste:.0%} of the computed) were thrown away "
            "by preemption"
        )
    return lines


def storm(facts: Facts) -> list[str]:
    """How much of the load is retries, and how they come."""
    lines = [
        f"{facts.amplification:.1f} arrivals per first attempt ({facts.flow.retries} retries of "
        f"{facts.attempts} in {facts.seconds:.0f} s)"
    ]
    returned = facts.counts.returned
    if total := returned.total():
        lines.append(
            f"of {total} that came back from a failure {returned['obeyed']} waited as told, "
            f"{returned['ignored']} did not, {returned['none']} had no advice or gave up"
        )
    lines.append(f"first attempts alone would take {facts.demand:.0%} of the engine")
    return lines


def token_budget(facts: Facts) -> str:
    """Small steps, much to read."""
    view = facts.now.view(Limit.MAX_BATCH_TOKENS)
    step = (facts.step or 0.0) * 1e3
    return (
        f"prompts wait to be read ({facts.now.laws.unread} tokens) while a step of at most "
        f"{view.current:.0f} tokens takes {step:.0f} ms of the {facts.now.tpot_target * 1e3:.0f} "
        f"ms that it may, at {facts.causes[Cause.TOKEN_BUDGET]} of {facts.causes.total()} looks"
    )


def more_tokens(facts: Facts) -> str:
    """Raise the token budget where that is possible at run time."""
    view = facts.now.view(Limit.MAX_BATCH_TOKENS)
    why = '--why "diagnose: steps are too small"'
    if view.override is not None:
        return f"surgetank limits clear {view.name} {why} --dry-run"
    if view.current < view.maximum:
        wider = min(view.maximum, 2 * view.current)
        return f"surgetank limits set {view.name} {wider:g} --ttl 10m {why} --dry-run"
    return "surgetank steps --slow"


def dispatch(facts: Facts) -> str:
    """Room, and a queue."""
    return (
        f"the engine has room and the queue does not reach it, at "
        f"{facts.causes[Cause.DISPATCH]} of {facts.causes.total()} looks"
    )


def compute(facts: Facts) -> list[str]:
    """More work than device; or a slow device."""
    now, lines = facts.now, []
    if full := facts.causes[Cause.COMPUTE]:
        lines.append(
            f"the engine was full, by its slots or by the TPOT target, at {full} of "
            f"{facts.causes.total()} looks; all arrivals would take "
            f"{facts.demand * facts.amplification:.0%} of it"
        )
    mu = now.laws.drain
    if mu is not None and mu < 1 / 1.3:
        lines.append(f"steps take {1 / mu:.1f} times what they took: a slower or a shared device")
    step = facts.step
    if full and step is not None and step < SHORT * now.tpot_target and not lines[1:]:
        lines.append(f"steps are short ({step * 1e3:.0f} ms): more slots (max_num_seqs) may do")
    return lines or ["targets are missed though nobody waits: prompts or steps are too long"]
