"""What a policy decides: who is served first, and whether the first of the line may enter now."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from surgetank.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Moment:
    """The step that is about to be made."""

    step: int  # made before it
    running: int  # sequences that stay in the batch
    admit_every: int  # steps, for policies that admit at intervals


class Policy(Protocol):
    """Pure, and constant for a sequence's life, so that the preempted find their old place again.

    Who derives from it states only what differs: by default the line is served as it came, its
    first may enter at any time, and nobody is put back for somebody else.
    """

    preempts: ClassVar[bool] = False  # the waiting may put lower classes back; order by class then

    def place(self, sequence: Sequence) -> tuple[float, ...]:
        """The sequence's place in the line, the smallest first."""
        return (sequence.order,)

    def may_admit(self, moment: Moment) -> bool:
        """Whether anyone may enter in this step; must be True when nothing runs."""
        return True
