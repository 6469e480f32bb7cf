"""Letting a share of a stream through: exactly so many, evenly spread, without dice.

Error diffusion: each arrival adds the share to a credit, and one that makes it reach 1 passes and
takes 1 away. Of any n arrivals in a row between share*n - 1 and share*n + 1 pass.
"""


class Ration:
    """One stream's credit, 0 to below 1."""

    def __init__(self) -> None:
        self._credit = 0.0

    def passes(self, share: float) -> bool:
        """Whether this arrival is let through; `share` 0 to 1 may change at any time."""
        if share >= 1.0:
            return True
        self._credit += share
        if self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True
