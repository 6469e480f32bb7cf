"""Earliest deadline first (EDF); those without a deadline come last, in order of arrival."""

from surgetank.engine.sequence import Sequence


def deadline(sequence: Sequence) -> tuple[float, ...]:
    """By deadline, then arrival."""
    return (sequence.deadline, sequence.order)
