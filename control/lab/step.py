"""One step of the simulated engine: its work, who moved in it, and why nobody else did."""

from dataclasses import dataclass, field

from surgetank.control.lab.decoding import Seq
from surgetank.engine.plan import Budget, prompt_room
from surgetank.telemetry.vocabulary import PreemptionKind, PreemptionReason, SlotState


@dataclass(slots=True)
class Gone:
    """One sequence that went back to the line."""

    seq: Seq
    kind: PreemptionKind
    reason: PreemptionReason
    tokens: int  # stored until now


@dataclass(slots=True)
class Step:
    """What engine/plan.py's Plan says of a step, by its numbers."""

    budget: Budget
    prefill: int = 0  # tokens
    prefill_seqs: int = 0
    decode: int = 0  # sequences, a token each
    context: int = 0  # tokens read: the K of the step model
    entered: int = 0  # sequences, out of the line
    started: list[Seq] = field(default_factory=list)
    ready: list[Seq] = field(default_factory=list)  # their prompt is read: a token at its end
    nearly: list[Seq] = field(default_factory=list)  # recomputed up to their newest token
    preempted: list[Gone] = field(default_factory=list)
    recomputed: int = 0  # tokens that were stored before and begin anew
    swapped_out: int = 0  # blocks
    swapped_in: int = 0
    starved: int = 0  # sequences that got no block, and pause
    blocked_by: SlotState = SlotState.NO_WORK
    contended: bool = False  # it began with a queue

    def room(self, stored: int = 0) -> int:
        """Prompt tokens that still fit, for a sequence with `stored` tokens before them."""
        return prompt_room(self.budget, self.prefill, self.decode, self.context, stored)

    def tokens_of(self, kind: PreemptionKind) -> int:
        """Stored by those that were preempted so."""
        return sum(gone.tokens for gone in self.preempted if gone.kind is kind)

    def preempted_for(self, reason: PreemptionReason) -> int:
        """How many were."""
        return sum(gone.reason is reason for gone in self.preempted)
