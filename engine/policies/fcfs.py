"""First come, first served."""

from surgetank.engine.sequence import Sequence


def fcfs(sequence: Sequence) -> tuple[float, ...]:
    """By arrival alone."""
    return (sequence.order,)
