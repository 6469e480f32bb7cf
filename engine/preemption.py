"""Who gives way, to whom and how: when blocks run out, and for a strictly higher class."""

from surgetank.engine.kv.manager import KVManager
from surgetank.engine.plan import Budget, Plan, Preempted, View
from surgetank.engine.policies.policy import Moment
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import PreemptionKind, PreemptionReason


def make_room(staying: list[Sequence], view: View, budget: Budget, plan: Plan) -> None:
    """Preempt while the decoding sequences cannot all grow by a token: only as many as it takes.

    Those preempted often enough are spared: who cannot grow then pauses, as long as anybody can
    go on and will give blocks back at its end. Only when nobody could, one of them goes. So the
    least dispensable always gets on, and no number of preemptions lasts for ever.
    """
    kv = view.kv
    while growth(staying, kv) > kv.pool.available:
        useful = [each for each in staying if _grows(each, kv) or kv.frees(each.table)] or staying
        fair = [each for each in useful if each.preemptions < budget.preemptions]
        if len(staying) <= 1 or (not fair and _anyone_goes_on(staying, kv)):
            return
        victim = max(fair or useful, key=dispensable)
        _preempt(victim, PreemptionReason.KV, staying, kv, budget, plan)


def give_way(staying: list[Sequence], view: View, budget: Budget, plan: Plan) -> None:
    """The first of the line puts lower classes back for the slots or blocks that it lacks, if
    that lets it in at once. Equals are never touched, nor anyone in a step that had victims."""
    wanted = budget.displace and view.policy.preempts and not plan.preempted
    if not wanted or not view.waiting:
        return
    first, leaving = view.waiting[0], list[Sequence]()
    lower = [each for each in staying if each.priority > first.priority]
    fair = [each for each in lower if each.preemptions < budget.preemptions]
    for victim in sorted(fair, key=dispensable, reverse=True):
        if not _lacks(first, staying, leaving, view, budget):
            break
        leaving.append(victim)
    if _lacks(first, staying, leaving, view, budget):
        return  # nothing would be won
    for victim in reversed(leaving):  # a large one may have made smaller ones needless
        others = [each for each in leaving if each is not victim]
        if not _lacks(first, staying, others, view, budget):
            leaving = others
    if _enters(first, [each for each in staying if each not in leaving], view, budget):
        for victim in leaving:
            _preempt(victim, PreemptionReason.PRIORITY, staying, view.kv, budget, plan)


def growth(sequences: list[Sequence], kv: KVManager) -> int:
    """Blocks that decoding one token each will take."""
    return sum(_grows(sequence, kv) for sequence in sequences)


def dispensable(sequence: Sequence) -> tuple[int, int, int]:
    """The greatest goes first: lowest class, then least progress lost, then newest."""
    return (sequence.priority, -sequence.table.stored, sequence.order)


def _grows(sequence: Sequence, kv: KVManager) -> int:
    return kv.needs(sequence.table) if sequence.decoding else 0


def _anyone_goes_on(staying: list[Sequence], kv: KVManager) -> bool:
    return kv.pool.available > 0 or not all(_grows(each, kv) for each in staying)


def _lacks(
    first: Sequence, staying: list[Sequence], leaving: list[Sequence], view: View, budget: Budget
) -> bool:
    """Whether slots or blocks are still missing when all of `leaving` have gone."""
    rest = [each for each in staying if each not in leaving]
    if first.width + sum(each.width for each in rest) > budget.sequences:
        return True
    spare = growth(rest, view.kv) + (budget.spare_blocks if rest else 0)
    given_up = [each.table for each in leaving]
    return view.kv.shortage(first.table, first.tokens, spare, given_up) > 0


def _enters(first: Sequence, rest: list[Sequence], view: View, budget: Budget) -> bool:
    """Whether the policy lets it in now, and the others leave it a token of the step: they all
    decode, but those of lower classes are read on after it."""
    decoding = sum(each.decoding for each in rest)
    ahead = [each for each in rest if not each.decoding and each.priority <= first.priority]
    unread = sum(each.remaining for each in ahead)
    room = min(budget.tokens - decoding, budget.prefill_tokens) - unread
    return room > 0 and view.policy.may_admit(Moment(view.steps, len(rest), budget.admit_every))


def _preempt(
    victim: Sequence,
    reason: PreemptionReason,
    staying: list[Sequence],
    kv: KVManager,
    budget: Budget,
    plan: Plan,
) -> None:
    """Copy out what it stored where that is cheaper than computing it again, and there is room."""
    stored = victim.table.stored
    kind, moves = PreemptionKind.RECOMPUTE, None
    if kv.blocks_for(stored) * budget.swap_seconds < stored * budget.recompute_seconds:
        moves = kv.swap_out(victim.table)
    if moves is None:
        kv.release(victim.table)
    else:
        kind = PreemptionKind.SWAP
        plan.swaps_out += moves
    staying.remove(victim)
    plan.preempted.append(Preempted(victim, kind, reason, stored))
