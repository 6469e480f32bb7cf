"""All decoding sequences of the simulated engine as one: they grow by one token a step.

Nothing is kept per step and sequence. A counter of decode steps stands for all of them: a sequence
that joined at count g with s tokens stored has s + count - g now. It wants a block when that is a
multiple of the block size, so when count = g - s (mod size): a table of sequences by that phase
tells the blocks that any step takes. And the count at which it ends is known when it joins.
"""

import heapq
from dataclasses import dataclass
from enum import Enum

from surgetank.control.lab.blocks import Kept
from surgetank.telemetry.vocabulary import Priority


class Place(Enum):
    """Where a sequence is."""

    WAITING = "waiting"
    READING = "reading"
    DECODING = "decoding"
    HELD = "held"  # it could decode, but for the token budget or for want of a block
    GONE = "gone"


@dataclass(eq=False, slots=True)
class Seq:
    """One request in the engine. `stored` and `out` hold as of `joined` while it decodes."""

    prompt: int  # tokens
    target: int  # output tokens after which it ends
    priority: Priority
    order: int
    place: Place = Place.WAITING
    epoch: int = 0  # changes with its place: an older heap entry is stale
    out: int = 0
    stored: int = 0
    blocks: int = 0
    joined: int = 0
    phase: int = 0
    reserved_at: int = -1  # the decode step whose block it holds already
    kept: Kept | None = None
    unnamed: tuple[int, int] = (0, 0)  # from which to below which block no name is known
    host_stored: int = 0  # tokens in the swap pool
    lost: int = 0  # tokens stored when it was last preempted
    preemptions: int = 0
    started: bool = False

    @property
    def remaining(self) -> int:
        """Tokens to compute before its next one is known; not while it decodes."""
        return self.prompt + self.out - self.stored


Entry = tuple[int, int, int, Seq]  # a rank, order, epoch


def stale(entry: Entry) -> bool:
    """Whether its sequence has moved on since the entry was made."""
    return entry[2] != entry[3].epoch


class Decoding:
    """The sequences in place DECODING."""

    def __init__(self, block_size: int) -> None:
        self.active = 0
        self.stored = 0  # tokens in their blocks
        self._size = block_size
        self._count = 0  # decode steps so far
        self._phases = [0] * block_size
        self._reserved: dict[int, int] = {}  # by count: blocks that are held already
        self._ends: list[Entry] = []  # the rank is the count at which it ends

    def since_joined(self, seq: Seq) -> int:
        """Tokens that it produced and stored since it joined."""
        return self._count - seq.joined if seq.place is Place.DECODING else 0

    def grows(self, seq: Seq) -> bool:
        """Whether the next token of a decoding sequence takes a block."""
        return seq.phase == self._count % self._size and seq.reserved_at != self._count

    @property
    def ending(self) -> bool:
        """Whether someone ends with the step just made."""
        return bool(self._ends) and self._ends[0][0] <= self._count

    def growth(self) -> int:
        """Blocks that the next token of each takes."""
        return self._phases[self._count % self._size] - self._reserved.get(self._count, 0)

    def grow(self) -> None:
        """A token more for each."""
        self._reserved.pop(self._count, None)
        self._count += 1
        self.stored += self.active

    def join(self, seq: Seq) -> None:
        """It decodes from the next step on."""
        seq.place, seq.joined = Place.DECODING, self._count
        seq.epoch += 1
        seq.phase = (self._count - seq.stored) % self._size
        self._phases[seq.phase] += 1
        if seq.stored % self._size == 0 and seq.blocks > seq.stored // self._size:
            seq.reserved_at = self._count
            self._reserved[self._count] = self._reserved.get(self._count, 0) + 1
        self.active += 1
        self.stored += seq.stored
        ends_at = self._count + seq.target - seq.out
        heapq.heappush(self._ends, (ends_at, seq.order, seq.epoch, seq))

    def part(self, seq: Seq) -> None:
        """It decodes no more; `stored`, `out` and `blocks` now say what it has."""
        if seq.reserved_at == self._count:
            self._reserved[self._count] -= 1
        grown = self.since_joined(seq)
        seq.stored += grown
        seq.out += grown
        seq.blocks = max(seq.blocks, -(-seq.stored // self._size))
        seq.epoch += 1
        self._phases[seq.phase] -= 1
        self.active -= 1
        self.stored -= seq.stored

    def pop_ended(self) -> list[Seq]:
        """Who has its last token, in order of arrival."""
        ended: list[Seq] = []
        while self._ends and (self.ending or stale(self._ends[0])):
            entry = heapq.heappop(self._ends)
            if not stale(entry):
                ended.append(entry[3])
        return ended
