"""No admission control: everything goes to the engine."""

from surgetank.control.lab.rivals.door import Seen


class Unlimited:
    """Says yes."""

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """Always."""
        return True

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
