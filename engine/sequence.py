"""The engine's nouns: one sequence per choice of a request, from arrival to its last token."""

import math
from dataclasses import dataclass, field

from surgetank.engine.api import SamplingParams
from surgetank.engine.kv.manager import BlockTable
from surgetank.telemetry.vocabulary import FinishReason, Priority


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens that grow by one a step. While its prompt is read it may lead its request's others.

    The n choices of a request have one prompt: the leader reads it, its followers hold a slot each
    and wait; with the prompt read they fork off and go their own ways.
    """

    request_id: int
    index: int  # which of the request's choices
    tokens: list[int]  # prompt, then output
    prompt_len: int
    sampling: SamplingParams
    seed: int  # 64 bits of this choice's own
    stop_ids: frozenset[int]
    order: int  # of arrival
    priority: Priority = Priority.DEFAULT
    deadline: float = math.inf  # on the engine's monotonic clock
    table: BlockTable = field(default_factory=BlockTable)
    leader: "Sequence | None" = None
    followers: list["Sequence"] = field(default_factory=list)
    started: bool = False  # has been in a step
    preemptions: int = 0
    lost: int = 0  # tokens that were stored when it was last preempted

    @property
    def width(self) -> int:
        """Slots that it holds."""
        return 1 + len(self.followers)

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def remaining(self) -> int:
        """Tokens whose keys and values are still to be computed before the next one is known."""
        return len(self.tokens) - self.table.stored

    @property
    def decoding(self) -> bool:
        """Reads nothing but its own newest token."""
        return self.output_len > 0 and self.remaining == 1

    def append(self, token: int) -> FinishReason | None:
        """Take one more token; tells whether it was the last."""
        self.tokens.append(token)
        if token in self.stop_ids:
            return FinishReason.STOP
        if self.output_len >= self.sampling.max_tokens:
            return FinishReason.LENGTH
        return None

    def hand_over(self) -> "Sequence | None":
        """Before it leaves: its first follower becomes the leader, with all that was read."""
        if not self.followers:
            return None
        heir, *others = self.followers
        heir.leader, heir.followers, heir.table = None, others, self.table
        heir.started, heir.preemptions, heir.lost = self.started, self.preemptions, self.lost
        for other in others:
            other.leader = heir
        self.followers, self.table = [], BlockTable()
        return heir
