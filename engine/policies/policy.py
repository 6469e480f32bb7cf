"""What an order of service is: a key by which sequences are sorted, the smallest served first."""

from typing import Protocol

from surgetank.engine.sequence import Sequence


class Policy(Protocol):
    """Pure and constant for a sequence's life, so that the preempted find their old place again."""

    def __call__(self, sequence: Sequence) -> tuple[float, ...]:
        """The sequence's place in the line."""
