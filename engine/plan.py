"""The scheduler's nouns: the budget of a step, the view it decides on, and the plan it makes."""

import math
from dataclasses import dataclass, field

from surgetank.engine.kv.manager import Copy, KVManager
from surgetank.engine.policies.policy import Policy
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.stepmodel import StepModel
from surgetank.telemetry.vocabulary import PreemptionKind, PreemptionReason, SlotState

UNKNOWN = StepModel(0.0, 0.0, 0.0, 0.0)  # before anything was measured
_STRETCH = 1.5  # of decoding's own time: prompts may always lengthen a step to that


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step may use. Changes only between steps."""

    tokens: int  # in all
    prefill_tokens: int  # of them, for reading prompts
    sequences: int  # that hold a slot at once
    spare_blocks: int  # that entering sequences leave for the running ones to grow into
    seconds: float = math.inf  # by `model`, for a step in which somebody decodes
    model: StepModel = UNKNOWN
    least_prefill: int = 1  # prompt tokens that `seconds` never forbids, so that none starve
    displace: bool = False  # a class may put lower ones back, where the policy orders by class
    preemptions: float = math.inf  # of a sequence, before it is left in peace
    recompute_seconds: float = 0.0  # a stored token
    swap_seconds: float = math.inf  # a block, out and in
    admit_every: int = 1  # steps, for policies that admit at intervals


def prompt_room(budget: Budget, prefill: int, decoding: int, context: int, stored: int = 0) -> int:
    """Prompt tokens that a step still has room for, with so many of them, so many decoding
    sequences and so much context in it already; for a sequence with `stored` tokens before them.

    They are cut to what the step's time allows only while somebody decodes and would feel it, and
    never below half of what decoding takes: a target that the machine cannot meet even without
    them is not met by starving them."""
    room = min(budget.tokens - decoding - prefill, budget.prefill_tokens - prefill)
    model = budget.model
    each = model.a + model.c
    so_far = model.seconds(prefill, decoding, context + stored)
    left = max(budget.seconds, _STRETCH * model.seconds(0, decoding, context)) - so_far
    if not decoding or room * each <= left:
        return room
    in_time = int(max(0.0, left) / each) if each else 0
    return min(room, max(in_time, budget.least_prefill - prefill))


@dataclass(slots=True)
class View:
    """What the scheduler looks at. It reserves blocks in `kv` and leaves both lists alone."""

    running: list[Sequence]  # in order of entry
    waiting: list[Sequence]  # in the policy's order
    kv: KVManager
    policy: Policy
    steps: int = 0  # planned so far


@dataclass(frozen=True, slots=True)
class Preempted:
    """One sequence that went back to the line, and what that cost."""

    sequence: Sequence
    kind: PreemptionKind
    reason: PreemptionReason
    tokens: int  # stored until now


@dataclass(slots=True)
class Plan:
    """One step: `decode` sequences compute one token each, `prefill` ones a chunk."""

    decode: list[Sequence] = field(default_factory=list)
    prefill: list[tuple[Sequence, int]] = field(default_factory=list)  # with its tokens
    admitted: list[Sequence] = field(default_factory=list)  # out of waiting
    preempted: list[Preempted] = field(default_factory=list)  # back to waiting
    swaps_out: list[Copy] = field(default_factory=list)  # (block, host block), first of all
    swaps_in: list[Copy] = field(default_factory=list)  # (host block, block), after them
    copies: list[Copy] = field(default_factory=list)  # on the device, last before the forward pass
    prefill_tokens: int = 0
    context: int = 0  # tokens that attention reads: K of the step model
    starved: int = 0  # sequences that got no block, and pause
    blocked_by: SlotState = SlotState.NO_WORK  # what kept the first of the waiting out

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """Who computes how many tokens, decoding sequences first."""
        return [*((sequence, 1) for sequence in self.decode), *self.prefill]

    @property
    def tokens(self) -> int:
        return len(self.decode) + self.prefill_tokens

    @property
    def preempted_tokens(self) -> int:
        """Stored until now, to be computed again."""
        lost = (each for each in self.preempted if each.kind is PreemptionKind.RECOMPUTE)
        return sum(each.tokens for each in lost)

    def room(self, budget: Budget, stored: int = 0) -> int:
        """Prompt tokens that still fit, for a sequence with `stored` tokens before them."""
        return prompt_room(budget, self.prefill_tokens, len(self.decode), self.context, stored)

    def compute(self, sequence: Sequence, copy: Copy | None) -> None:
        """Let a sequence decode its next token, in its block's copy if it needs one."""
        self.decode.append(sequence)
        self.context += sequence.table.stored + 1
        if copy is not None:
            self.copies.append(copy)

    def read(self, sequence: Sequence, room: int) -> None:
        """Let a sequence read as much of its prompt as there is room for."""
        chunk = min(sequence.remaining, room)
        self.prefill.append((sequence, chunk))
        self.prefill_tokens += chunk
        self.context += sequence.table.stored + chunk

    def keep(self, tokens: int, without: list[Sequence]) -> None:
        """Do no more than that, and nothing for some: the others stay where they are."""
        chunks, self.prefill, self.prefill_tokens = self.prefill, [], 0
        self.decode = [each for each in self.decode if each not in without][:tokens]
        self.context = sum(each.table.stored + 1 for each in self.decode)
        for sequence, count in chunks:
            left = tokens - self.tokens
            if sequence not in without and left > 0:
                self.read(sequence, min(count, left))
