"""The simulated engine's scheduler: the same steps as engine/scheduler.py, at O(1) a step.

Only what is rare looks at the running sequences one by one: preemption, a token budget below the
batch, and decoding for which blocks are short.
"""

import heapq

from surgetank.control.lab.blocks import Blocks
from surgetank.control.lab.budgets import Budgets
from surgetank.control.lab.decoding import Decoding, Entry, Place, Seq, stale
from surgetank.control.lab.giving_way import give_way, make_room
from surgetank.control.lab.step import Gone, Step
from surgetank.control.lab.steptime import EngineSpec
from surgetank.engine.api import Settings
from surgetank.engine.plan import UNKNOWN
from surgetank.telemetry.vocabulary import PreemptionKind, PreemptionReason, Priority, SlotState


class Batch:
    """Waiting and running sequences. plan() commits a step, settle() its results."""

    def __init__(self, spec: EngineSpec) -> None:
        self._budgets = Budgets(spec)
        self.budget = self._budgets.budget  # of the next step
        self.blocks = Blocks(spec.kv_blocks, spec.block_size, spec.swap_blocks)
        self.blocks.limit = spec.kv_usable
        self.waiting = dict.fromkeys(Priority, 0)
        self.seated = dict.fromkeys(Priority, 0)
        self.running: dict[Seq, None] = {}  # in order of entry
        self.backlog = 0  # prompt tokens accepted and not yet computed
        self._by_priority = spec.by_priority
        self._line: list[Entry] = []
        self._reading: list[Entry] = []
        self._decoding = Decoding(spec.block_size)
        self._held: list[Seq] = []
        self._stored_apart = 0  # tokens of those that run and do not decode

    def __len__(self) -> int:
        return len(self.running) + sum(self.waiting.values())

    @property
    def stored_tokens(self) -> int:
        """Tokens in the running sequences' blocks."""
        return self._decoding.stored + self._stored_apart

    def apply(self, settings: Settings) -> None:
        """New limits from the next step on."""
        self._budgets.apply(settings)
        self.budget, self.blocks.limit = self._budgets.budget, self._budgets.kv_blocks

    def learn(self, steps: int) -> None:
        """So many steps were made."""
        self._budgets.stepped(steps)
        self.budget = self._budgets.budget

    def add(self, seq: Seq) -> None:
        """A new request, at its place in the line."""
        self._wait(seq)

    def drop(self, seq: Seq) -> None:
        """Out, whatever it was doing; nothing happens when it is."""
        if seq.place is Place.WAITING:
            self.waiting[seq.priority] -= 1
            self.backlog -= seq.remaining - seq.host_stored
            self._forget_swapped(seq)
        elif seq.place is not Place.GONE:
            self._leave(seq)
            self.blocks.release(seq.blocks, seq.stored, seq.unnamed)
        seq.place = Place.GONE
        seq.epoch += 1

    def plan(self) -> Step:
        """Decide the next step, and count its tokens as computed."""
        step = Step(self.budget, contended=any(self.waiting.values()))
        make_room(self, step)
        give_way(self, step)
        self._decode(step)
        self._read_on(step)
        self._admit(step)
        return step

    def repeats(self, step: Step) -> bool:
        """Whether the step after this one is the same again, unless someone comes or goes."""
        if step.prefill or step.preempted or self._held or not step.decode:
            return False
        if step.budget.model is UNKNOWN:  # the budget may be another one
            return False
        if self._decoding.ending or self.displacer() is not None:
            return False
        return self._decoding.growth() <= self.blocks.available

    def again(self, step: Step) -> None:
        """The same step once more; only after repeats()."""
        step.context = self._decoding.stored + self._decoding.active
        self._grow()

    def settle(self, step: Step) -> list[Seq]:
        """The step is over: who has read its prompt decodes; returns those who have ended."""
        ended = self._decoding.pop_ended()
        for seq in step.ready:
            if seq.out + 1 >= seq.target:
                ended.append(seq)
            else:
                seq.out += 1
                self._join(seq)
        for seq in step.nearly:
            self._join(seq)
        for seq in ended:
            self.drop(seq)
        return ended

    # For those who give way.

    def growth(self) -> int:
        """Blocks that decoding one token each will take."""
        growth = self._decoding.growth()
        return growth + sum(map(self.grows, self._held)) if self._held else growth

    def grows(self, seq: Seq) -> bool:
        """Whether a running sequence takes a block in the next step."""
        if seq.place is Place.DECODING:
            return self._decoding.grows(seq)
        return seq.place is Place.HELD and seq.stored == seq.blocks * self.blocks.size

    def stored_by(self, seq: Seq) -> int:
        """Tokens in a running sequence's blocks."""
        return seq.stored + self._decoding.since_joined(seq)

    def blocks_of(self, seq: Seq) -> int:
        """Blocks that a running sequence holds."""
        return max(seq.blocks, self.blocks.blocks_for(self.stored_by(seq)))

    def displacer(self) -> Seq | None:
        """The first of the line, where lower classes run that it might put back."""
        if not self._by_priority or not self.budget.displace:
            return None
        while self._line and stale(self._line[0]):
            heapq.heappop(self._line)
        if not self._line:
            return None
        first = self._line[0][3]
        lower = (count for each, count in self.seated.items() if each > first.priority)
        return first if any(lower) else None

    def preempt(self, seq: Seq, reason: PreemptionReason, step: Step) -> None:
        """Back to the line; copied out where that is cheaper than computing it again."""
        self._leave(seq)
        blocks, budget, stored = self.blocks, self.budget, seq.stored
        kind, needed = PreemptionKind.RECOMPUTE, blocks.blocks_for(stored)
        swap = needed * budget.swap_seconds < stored * budget.recompute_seconds
        if swap and 0 < needed <= blocks.host - blocks.swapped:
            kind, seq.host_stored = PreemptionKind.SWAP, stored
            blocks.swapped += needed
            step.swapped_out += needed
        step.preempted.append(Gone(seq, kind, reason, stored))
        seq.kept = blocks.release(seq.blocks, stored, seq.unnamed)
        seq.lost, seq.stored, seq.blocks, seq.unnamed = stored, 0, 0, (0, 0)
        seq.preemptions += 1
        self._wait(seq)

    # The parts of a step, in the real scheduler's order.

    def _decode(self, step: Step) -> None:
        decoding = self._decoding
        if (
            self._held
            or decoding.active > step.budget.tokens
            or decoding.growth() > max(0, self.blocks.available)
        ):
            self._choose_active(step)
        step.decode = decoding.active
        step.context = decoding.stored + decoding.active
        self._grow()

    def _grow(self) -> None:
        if growth := self._decoding.growth():
            self.blocks.take(growth)
        self._decoding.grow()

    def _choose_active(self, step: Step) -> None:
        """The first of those that decode get the tokens, and the blocks; the others pause."""
        tokens, blocks = step.budget.tokens, self.blocks.available
        for seq in self.running:
            if seq.place not in (Place.DECODING, Place.HELD):
                continue
            grows = self.grows(seq)
            starved = tokens > 0 and grows and blocks <= 0
            step.starved += starved
            goes_on = tokens > 0 and not starved
            if goes_on:
                tokens -= 1
                blocks -= grows
            if goes_on and seq.place is Place.HELD:
                self._held.remove(seq)
                self._join(seq)
            elif not goes_on and seq.place is Place.DECODING:
                self._part(seq)
                seq.place = Place.HELD
                self._held.append(seq)

    def _read(self, seq: Seq, room: int, step: Step) -> bool:
        """Read as much of a prompt as there is room for; False when some is left."""
        chunk = min(seq.remaining, room)
        seq.stored += chunk
        self._stored_apart += chunk
        self.backlog -= chunk
        step.prefill += chunk
        step.prefill_seqs += 1
        step.context += seq.stored
        if seq.remaining == 0:
            step.ready.append(seq)
        elif seq.remaining == 1 and seq.out > 0:  # its newest token: decoding, from the next step
            step.nearly.append(seq)
            self.backlog -= 1
        else:
            return False
        return True

    def _read_on(self, step: Step) -> None:
        """Those who have begun; by class, after those of higher classes that wait. Where context
        makes one too slow, the next may still be read."""
        entries, self._reading = sorted(self._reading), []
        for entry in entries:
            if stale(entry):
                continue
            seq = entry[3]
            if self._by_priority:
                self._admit(step, above=seq.priority)
            room = step.room(seq.stored)
            if room <= 0 or not self._read(seq, room, step):
                self._reading.append(entry)

    def _admit(self, step: Step, above: int = len(Priority)) -> None:
        """Those of the classes above that one, strictly in order; whoever does not fit stops the
        line. What was won by preemption is for those who grow, or for the one who made others go.
        """
        reasons = {gone.reason for gone in step.preempted}
        if reasons:
            step.blocked_by = SlotState.BLOCKED_KV
        while self._line:
            entry = self._line[0]
            if stale(entry):
                heapq.heappop(self._line)
                continue
            if entry[3].priority >= above:
                return
            if PreemptionReason.KV in reasons or (reasons and step.entered):
                return
            seq = entry[3]
            blocked_by = self._kept_out(seq, step)
            if blocked_by is not None:
                step.blocked_by = blocked_by
                return
            heapq.heappop(self._line)
            room = step.room()
            self._seat(seq, step)
            if not self._read(seq, room, step):
                self._reading.append(self._entry(seq))

    def _kept_out(self, seq: Seq, step: Step) -> SlotState | None:
        """What keeps the first of the line out; None when it may come in."""
        if len(self.running) >= step.budget.sequences:
            return SlotState.BLOCKED_LIMIT
        if step.room() <= 0:
            return SlotState.BLOCKED_TOKEN_BUDGET
        spare = step.budget.spare_blocks if self.running else 0
        needed = self.blocks.blocks_for(seq.prompt + seq.out)
        return SlotState.BLOCKED_KV if needed + spare > self.blocks.available else None

    def _seat(self, seq: Seq, step: Step) -> None:
        """Give it a slot and its blocks, with what the cache still has and what was swapped out."""
        self.waiting[seq.priority] -= 1
        self.backlog += seq.host_stored
        found = 0
        if seq.kept is not None:
            found = seq.kept.blocks
            self.blocks.revive(seq.kept)
            seq.kept = None
        seq.stored = max(found * self.blocks.size, seq.host_stored)
        if seq.host_stored:
            step.swapped_in += max(0, self.blocks.blocks_for(seq.host_stored) - found)
            seq.unnamed = (found, max(found, seq.host_stored // self.blocks.size))
            self._forget_swapped(seq)
        step.recomputed += max(0, seq.lost - seq.stored)
        seq.blocks = self.blocks.blocks_for(seq.prompt + seq.out)
        self.blocks.take(seq.blocks - found)
        self.backlog -= seq.stored
        self._stored_apart += seq.stored
        seq.place = Place.READING
        seq.epoch += 1
        self.running[seq] = None
        self.seated[seq.priority] += 1
        step.entered += 1
        if not seq.started:
            seq.started = True
            step.started.append(seq)

    # From one place to another.

    def _wait(self, seq: Seq) -> None:
        seq.place = Place.WAITING
        seq.epoch += 1
        self.waiting[seq.priority] += 1
        self.backlog += seq.remaining - seq.host_stored
        heapq.heappush(self._line, self._entry(seq))

    def _entry(self, seq: Seq) -> Entry:
        return (int(seq.priority) if self._by_priority else 0, seq.order, seq.epoch, seq)

    def _forget_swapped(self, seq: Seq) -> None:
        self.blocks.swapped -= self.blocks.blocks_for(seq.host_stored)
        seq.host_stored = 0

    def _join(self, seq: Seq) -> None:
        self._stored_apart -= seq.stored
        self._decoding.join(seq)

    def _part(self, seq: Seq) -> None:
        self._decoding.part(seq)
        self._stored_apart += seq.stored

    def _leave(self, seq: Seq) -> None:
        """It runs no more."""
        del self.running[seq]
        self.seated[seq.priority] -= 1
        if seq.place is Place.DECODING:
            self._part(seq)
        elif seq.place is Place.HELD:
            self._held.remove(seq)
        elif seq.place is Place.READING:
            self.backlog -= seq.remaining
        self._stored_apart -= seq.stored
        seq.epoch += 1
