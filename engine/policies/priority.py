"""Higher classes first; first come, first served within a class."""

from typing import ClassVar

from surgetank.engine.policies.policy import Policy
from surgetank.engine.sequence import Sequence


class ByClass(Policy):
    """By class, then arrival. Lower classes wait, and give way, as long as higher ones come."""

    preempts: ClassVar[bool] = True

    def place(self, sequence: Sequence) -> tuple[float, ...]:
        return (sequence.priority, sequence.order)
