"""Higher classes first; first come, first served within a class."""

from surgetank.engine.sequence import Sequence


def priority(sequence: Sequence) -> tuple[float, ...]:
    """By class, then arrival. Lower classes wait as long as higher ones keep coming."""
    return (sequence.priority, sequence.order)
