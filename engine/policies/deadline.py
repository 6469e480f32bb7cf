"""Earliest deadline first (EDF); those without a deadline come last, in order of arrival."""

from surgetank.engine.policies.policy import Policy
from surgetank.engine.sequence import Sequence


class Deadline(Policy):
    """By deadline, then arrival."""

    def place(self, sequence: Sequence) -> tuple[float, ...]:
        return (sequence.deadline, sequence.order)
