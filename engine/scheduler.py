"""Who works in the next step: one token budget for prompts and decoding alike, running first."""

from surgetank.engine.kv.manager import KVManager
from surgetank.engine.kv.pool import NoBlockError
from surgetank.engine.plan import Budget, Plan, View
from surgetank.engine.policies.policy import Moment
from surgetank.engine.preemption import give_way, make_room
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import PreemptionReason, Priority, SlotState


def schedule(view: View, budget: Budget) -> Plan:
    """Decide one step. Every step anew: who finished has left `view`, who fits enters."""
    plan = Plan()
    staying = list(view.running)
    make_room(staying, view, budget, plan)
    give_way(staying, view, budget, plan)
    _decode(staying, view.kv, budget, plan)
    _continue_prefill(staying, view, budget, plan)
    _admit(staying, view, budget, plan)
    return plan


def _decode(staying: list[Sequence], kv: KVManager, budget: Budget, plan: Plan) -> None:
    """One token for each that has read its prompt; who gets no block pauses."""
    for sequence in staying:
        if sequence.decoding and plan.tokens < budget.tokens:
            try:
                plan.compute(sequence, kv.grow(sequence.table))
            except NoBlockError:
                plan.starved += 1


def _continue_prefill(staying: list[Sequence], view: View, budget: Budget, plan: Plan) -> None:
    """The next chunk of prompts begun before; their blocks were reserved on entry. Where the
    policy goes by class, none is read on before those of higher classes that wait."""
    unread = [sequence for sequence in staying if not sequence.decoding]
    for sequence in sorted(unread, key=view.policy.place):
        if view.policy.preempts:
            _admit(staying, view, budget, plan, above=sequence.priority)
        if (room := plan.room(budget, sequence.table.stored)) > 0:
            plan.read(sequence, room)


def _admit(
    staying: list[Sequence], view: View, budget: Budget, plan: Plan, above: int = len(Priority)
) -> None:
    """Let the waiting of the classes above that one in, strictly in order: the first that does
    not fit stops the line."""
    slots = budget.sequences - sum(each.width for each in (*staying, *plan.admitted))
    if plan.preempted:
        plan.blocked_by = SlotState.BLOCKED_KV
    for sequence in view.waiting[len(plan.admitted) :]:
        if sequence.priority >= above:
            return
        obstacle = _obstacle(sequence, slots, staying, view, budget, plan)
        if obstacle is not SlotState.NO_WORK:
            plan.blocked_by = obstacle
            return
        room = plan.room(budget)
        plan.swaps_in += view.kv.swap_in(sequence.table)
        plan.admitted.append(sequence)
        plan.read(sequence, room)
        slots -= sequence.width


def _obstacle(
    sequence: Sequence,
    slots: int,
    staying: list[Sequence],
    view: View,
    budget: Budget,
    plan: Plan,
) -> SlotState:
    """What keeps a sequence out; NO_WORK when nothing does, and it has its blocks."""
    if _spoken_for(plan):
        return SlotState.BLOCKED_KV
    if not view.policy.may_admit(Moment(view.steps, len(staying), budget.admit_every)):
        return SlotState.BLOCKED_OTHER
    if sequence.width > slots:
        return SlotState.BLOCKED_LIMIT
    if plan.room(budget) <= 0:
        return SlotState.BLOCKED_TOKEN_BUDGET
    alone = not staying and not plan.admitted  # then it may have every block
    try:
        fits = view.kv.admit(sequence.table, sequence.tokens, 0 if alone else budget.spare_blocks)
    except NoBlockError:
        plan.starved += 1
        return SlotState.BLOCKED_KV
    return SlotState.NO_WORK if fits else SlotState.BLOCKED_KV


def _spoken_for(plan: Plan) -> bool:
    """What was won by preemption is for those who grow, or for the one who made others go."""
    reasons = {each.reason for each in plan.preempted}
    return PreemptionReason.KV in reasons or (bool(reasons) and bool(plan.admitted))
