"""Who gives way in the simulated engine: engine/preemption.py's rules, by the batch's numbers.

Nobody is looked at one by one before blocks, or slots for a higher class, are really missing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from surgetank.control.lab.decoding import Place, Seq
from surgetank.control.lab.step import Step
from surgetank.telemetry.vocabulary import PreemptionReason

if TYPE_CHECKING:
    from surgetank.control.lab.batch import Batch


def make_room(batch: "Batch", step: Step) -> None:
    """Preempt while the decoding sequences cannot all grow by a token, but nobody beyond the cap
    as long as anyone can go on; those that get no block then pause."""
    while (growth := batch.growth()) > (available := batch.blocks.available):
        running, most = batch.running, batch.budget.preemptions
        fair = [seq for seq in running if seq.preemptions < most]
        if len(running) <= 1 or (not fair and (available > 0 or growth < len(running))):
            return
        batch.preempt(max(fair or running, key=_dispensable(batch)), PreemptionReason.KV, step)


def give_way(batch: "Batch", step: Step) -> None:
    """The first of the line puts lower classes back for the slots or blocks that it lacks, if
    that lets it in at once. Equals are never touched, nor anyone in a step that had victims."""
    first = None if step.preempted else batch.displacer()
    if first is None or not _lacks(batch, first, []):
        return
    most, dispensable = batch.budget.preemptions, _dispensable(batch)
    lower = [seq for seq in batch.running if seq.priority > first.priority]
    leaving: list[Seq] = []
    for victim in sorted(lower, key=dispensable, reverse=True):
        if victim.preemptions >= most:
            continue
        leaving.append(victim)
        if not _lacks(batch, first, leaving):
            break
    else:
        return  # nothing would be won
    for victim in reversed(leaving):  # a large one may have made smaller ones needless
        others = [seq for seq in leaving if seq is not victim]
        if not _lacks(batch, first, others):
            leaving = others
    if _enters(batch, first, leaving):
        for victim in leaving:
            batch.preempt(victim, PreemptionReason.PRIORITY, step)


def _dispensable(batch: "Batch") -> Callable[[Seq], tuple[int, int, int]]:
    """The greatest goes first: lowest class, then least progress lost, then newest."""
    return lambda seq: (seq.priority, -batch.stored_by(seq), seq.order)


def _lacks(batch: "Batch", first: Seq, leaving: list[Seq]) -> bool:
    """Whether slots or blocks are still missing when all of `leaving` have gone."""
    rest = len(batch.running) - len(leaving)
    if rest >= batch.budget.sequences:
        return True
    growth = batch.growth() - sum(batch.grows(seq) for seq in leaving)
    spare = growth + (batch.budget.spare_blocks if rest else 0)
    freed = sum(batch.blocks_of(seq) for seq in leaving)
    needed = batch.blocks.blocks_for(first.prompt + first.out)
    return needed + spare > batch.blocks.available + freed


def _enters(batch: "Batch", first: Seq, leaving: list[Seq]) -> bool:
    """Whether the others leave the newcomer a token of the step: they all decode, but those of
    lower classes are read on after it."""
    rest = [seq for seq in batch.running if seq not in leaving]
    reading = [seq for seq in rest if seq.place is Place.READING]
    unread = sum(seq.remaining for seq in reading if seq.priority <= first.priority)
    budget = batch.budget
    return min(budget.tokens - len(rest) + len(reading), budget.prefill_tokens) - unread > 0
