"""The simulated engine's scheduler: the same steps as engine/scheduler.py, at O(1) a step."""

import heapq
import math
from dataclasses import dataclass, field

from surgetank.control.lab.blocks import Blocks
from surgetank.control.lab.decoding import Decoding, Entry, Place, Seq, stale
from surgetank.control.lab.steptime import EngineSpec
from surgetank.telemetry.vocabulary import Priority, SlotState


@dataclass(slots=True)
class Step:
    """One step's work, and who moved in it."""

    prefill: int = 0  # tokens
    prefill_seqs: int = 0
    decode: int = 0  # sequences, a token each
    context: int = 0  # tokens read: the K of the step model
    started: list[Seq] = field(default_factory=list)
    ready: list[Seq] = field(default_factory=list)  # their prompt is read: a token at its end
    nearly: list[Seq] = field(default_factory=list)  # recomputed up to their newest token
    preempted: list[Seq] = field(default_factory=list)
    preempted_tokens: int = 0
    blocked_by: SlotState = SlotState.NO_WORK
    budget: int = 0  # tokens that it might have had
    contended: bool = False  # it began with a queue


class Batch:
    """Waiting and running sequences. plan() commits a step, settle() its results."""

    def __init__(self, spec: EngineSpec) -> None:
        self.tokens = spec.max_batch_tokens
        self.sequences = spec.max_num_seqs
        self.blocks = Blocks(spec.kv_blocks, spec.block_size)
        self.waiting = dict.fromkeys(Priority, 0)
        self.seated = dict.fromkeys(Priority, 0)
        self.running: dict[Seq, None] = {}  # in order of entry
        self.backlog = 0  # prompt tokens accepted and not yet computed
        self.recomputed = 0  # tokens
        self._prefill_share = spec.prefill_share
        self._spare = math.ceil(spec.kv_blocks * spec.kv_spare)
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

    def add(self, seq: Seq) -> None:
        """A new request, at its place in the line."""
        self._wait(seq)

    def drop(self, seq: Seq) -> None:
        """Out, whatever it was doing; nothing happens when it is."""
        if seq.place is Place.WAITING:
            self.waiting[seq.priority] -= 1
            self.backlog -= seq.remaining
        elif seq.place is not Place.GONE:
            self._leave(seq)
            self.blocks.release(seq.blocks, seq.stored)
        seq.place = Place.GONE
        seq.epoch += 1

    def plan(self) -> Step:
        """Decide the next step, and count its tokens as computed."""
        step = Step(budget=self.tokens, contended=any(self.waiting.values()))
        self._make_room(step)
        self._decode(step)
        self._read_on(step)
        self._admit(step)
        return step

    def repeats(self, step: Step) -> bool:
        """Whether the step after this one is the same again, unless someone comes or goes."""
        if step.prefill or step.preempted or self._held or not step.decode:
            return False
        return not self._decoding.ending and self._decoding.growth() <= self.blocks.available

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

    # The parts of a step, in the real scheduler's order.

    def _make_room(self, step: Step) -> None:
        """Preempt while decoding does not fit: lowest class, then least lost, then newest."""
        while self.running and self._growth() > self.blocks.available:
            victim = max(self.running, key=self._dispensable)
            self._leave(victim)
            step.preempted.append(victim)
            step.preempted_tokens += victim.stored
            victim.kept = self.blocks.release(victim.blocks, victim.stored)
            victim.computed, victim.stored, victim.blocks = victim.stored, 0, 0
            victim.preemptions += 1
            self._wait(victim)

    def _growth(self) -> int:
        size = self.blocks.size
        return self._decoding.growth() + sum(s.stored == s.blocks * size for s in self._held)

    def _dispensable(self, seq: Seq) -> tuple[int, int, int]:
        return (seq.priority, -seq.stored - self._decoding.since_joined(seq), seq.order)

    def _decode(self, step: Step) -> None:
        if self._held or self._decoding.active > self.tokens:
            self._choose_active()
        step.decode = self._decoding.active
        step.context = self._decoding.stored + self._decoding.active
        self._grow()

    def _grow(self) -> None:
        if growth := self._decoding.growth():
            self.blocks.take(growth)
        self._decoding.grow()

    def _choose_active(self) -> None:
        """The first of those that decode get the tokens; a budget below the batch is rare."""
        decoding = [s for s in self.running if s.place in (Place.DECODING, Place.HELD)]
        for seq in decoding[self.tokens :]:
            if seq.place is Place.DECODING:
                self._part(seq)
                seq.place = Place.HELD
                self._held.append(seq)
        for seq in decoding[: self.tokens]:
            if seq.place is Place.HELD:
                self._held.remove(seq)
                self._join(seq)

    def _room(self, step: Step) -> int:
        prefill = max(1, int(self.tokens * self._prefill_share))
        return min(self.tokens - step.decode - step.prefill, prefill - step.prefill)

    def _read(self, seq: Seq, step: Step) -> bool:
        """Read as much of a prompt as there is room for; False when some is left."""
        chunk = min(seq.remaining, self._room(step))
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
        while self._reading:
            if stale(self._reading[0]):
                heapq.heappop(self._reading)
            elif self._room(step) <= 0 or not self._read(self._reading[0][3], step):
                return
            else:
                heapq.heappop(self._reading)

    def _admit(self, step: Step) -> None:
        """Strictly in order; whoever does not fit stops the line."""
        if step.preempted:
            step.blocked_by = SlotState.BLOCKED_KV
            return
        while self._line:
            seq = self._line[0][3]
            if stale(self._line[0]):
                heapq.heappop(self._line)
                continue
            blocked_by = self._kept_out(seq, step)
            if blocked_by is not None:
                step.blocked_by = blocked_by
                return
            heapq.heappop(self._line)
            self._seat(seq, step)
            if not self._read(seq, step):
                heapq.heappush(self._reading, self._entry(seq))

    def _kept_out(self, seq: Seq, step: Step) -> SlotState | None:
        """What keeps the first of the line out; None when it may come in."""
        if len(self.running) >= self.sequences:
            return SlotState.BLOCKED_LIMIT
        if self._room(step) <= 0:
            return SlotState.BLOCKED_TOKEN_BUDGET
        spare = self._spare if self.running else 0
        needed = self.blocks.blocks_for(seq.prompt + seq.out)
        return SlotState.BLOCKED_KV if needed + spare > self.blocks.available else None

    def _seat(self, seq: Seq, step: Step) -> None:
        """Give it a slot and its blocks, those first that the cache still has."""
        self.waiting[seq.priority] -= 1
        if seq.kept is not None:
            seq.stored = seq.kept.blocks * self.blocks.size
            self.blocks.revive(seq.kept)
            self.recomputed += max(0, seq.computed - seq.stored)
        seq.blocks = self.blocks.blocks_for(seq.prompt + seq.out)
        self.blocks.take(seq.blocks - seq.stored // self.blocks.size)
        self.backlog -= seq.stored
        self._stored_apart += seq.stored
        seq.place = Place.READING
        seq.epoch += 1
        self.running[seq] = None
        self.seated[seq.priority] += 1
        if not seq.started:
            seq.started = True
            step.started.append(seq)

    # From one place to another.

    def _wait(self, seq: Seq) -> None:
        seq.place = Place.WAITING
        seq.epoch += 1
        self.waiting[seq.priority] += 1
        self.backlog += seq.remaining
        heapq.heappush(self._line, self._entry(seq))

    def _entry(self, seq: Seq) -> Entry:
        return (int(seq.priority) if self._by_priority else 0, seq.order, seq.epoch, seq)

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
