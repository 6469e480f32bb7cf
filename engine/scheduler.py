"""Who works in the next step: one token budget for prompts and decoding alike, running first."""

from dataclasses import dataclass, field

from surgetank.engine.kv.manager import Copy, KVManager
from surgetank.engine.policies.policy import Policy
from surgetank.engine.sequence import Sequence
from surgetank.telemetry.vocabulary import SlotState


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step may use. Changes only between steps."""

    tokens: int  # in all
    prefill_tokens: int  # of them, for reading prompts
    sequences: int  # that hold a slot at once
    spare_blocks: int  # that entering sequences leave for the running ones to grow into


@dataclass(slots=True)
class View:
    """What the scheduler looks at. It reserves blocks in `kv` and leaves both lists alone."""

    running: list[Sequence]  # in order of entry
    waiting: list[Sequence]  # in the policy's order
    kv: KVManager
    policy: Policy


@dataclass(slots=True)
class Plan:
    """One step: `decode` sequences compute one token each, `prefill` ones a chunk."""

    decode: list[Sequence] = field(default_factory=list)
    prefill: list[tuple[Sequence, int]] = field(default_factory=list)  # with its tokens
    admitted: list[Sequence] = field(default_factory=list)  # out of waiting
    preempted: list[Sequence] = field(default_factory=list)  # back to waiting, blocks released
    copies: list[Copy] = field(default_factory=list)  # before the forward pass
    prefill_tokens: int = 0
    preempted_tokens: int = 0  # stored until now, to be computed again
    blocked_by: SlotState = SlotState.NO_WORK  # what kept the first of the waiting out

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """Who computes how many tokens, decoding sequences first."""
        return [*((sequence, 1) for sequence in self.decode), *self.prefill]

    @property
    def tokens(self) -> int:
        return len(self.decode) + self.prefill_tokens

    def room(self, budget: Budget) -> int:
        """Prompt tokens that still fit into the step."""
        return min(budget.tokens - self.tokens, budget.prefill_tokens - self.prefill_tokens)

    def read(self, sequence: Sequence, room: int) -> None:
        """Let a sequence read as much of its prompt as there is room for."""
        chunk = min(sequence.remaining, room)
        self.prefill.append((sequence, chunk))
        self.prefill_tokens += chunk


def schedule(view: View, budget: Budget) -> Plan:
    """Decide one step. Every step anew: who finished has left `view`, who fits enters."""
    plan = Plan()
    staying = _make_room(view, plan)
    _decode(staying, view.kv, budget, plan)
    _continue_prefill(staying, view.policy, budget, plan)
    _admit(staying, view, budget, plan)
    return plan


def _make_room(view: View, plan: Plan) -> list[Sequence]:
    """Preempt while the decoding sequences cannot all grow by a token: only as many as it takes."""
    staying = list(view.running)
    while _growth(staying, view.kv) > view.kv.pool.available:
        victim = max(staying, key=_dispensable)
        staying.remove(victim)
        plan.preempted_tokens += victim.table.stored
        view.kv.release(victim.table)
        plan.preempted.append(victim)
    return staying


def _growth(sequences: list[Sequence], kv: KVManager) -> int:
    """Blocks that decoding one token each will take."""
    return sum(kv.needs(sequence.table) for sequence in sequences if sequence.decoding)


def _dispensable(sequence: Sequence) -> tuple[int, int, int]:
    """The greatest goes first: lowest class, then least progress lost, then newest."""
    return (sequence.priority, -sequence.table.stored, sequence.order)


def _decode(staying: list[Sequence], kv: KVManager, budget: Budget, plan: Plan) -> None:
    """One token for each that has read its prompt."""
    for sequence in staying:
        if sequence.decoding and plan.tokens < budget.tokens:
            plan.decode.append(sequence)
            copy = kv.grow(sequence.table)
            if copy is not None:
                plan.copies.append(copy)


def _continue_prefill(staying: list[Sequence], policy: Policy, budget: Budget, plan: Plan) -> None:
    """The next chunk of prompts begun before; their blocks were reserved on entry."""
    unread = [sequence for sequence in staying if not sequence.decoding]
    for sequence in sorted(unread, key=policy):
        if (room := plan.room(budget)) > 0:
            plan.read(sequence, room)


def _admit(staying: list[Sequence], view: View, budget: Budget, plan: Plan) -> None:
    """Let the waiting in, strictly in order: the first that does not fit stops the line."""
    if plan.preempted:  # whoever entered now would take the blocks just won
        plan.blocked_by = SlotState.BLOCKED_KV
        return
    slots = budget.sequences - sum(sequence.width for sequence in staying)
    for sequence in view.waiting:
        room = plan.room(budget)
        alone = not staying and not plan.admitted  # then it may have every block
        if sequence.width > slots:
            plan.blocked_by = SlotState.BLOCKED_LIMIT
            return
        if room <= 0:
            plan.blocked_by = SlotState.BLOCKED_TOKEN_BUDGET
            return
        if not view.kv.admit(sequence.table, sequence.tokens, 0 if alone else budget.spare_blocks):
            plan.blocked_by = SlotState.BLOCKED_KV
            return
        slots -= sequence.width
        plan.admitted.append(sequence)
        plan.read(sequence, room)
