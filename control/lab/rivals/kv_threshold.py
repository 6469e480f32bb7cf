"""A threshold on the KV pool's usage, as the engine's metrics tell it."""

from surgetank.control.lab.rivals.door import Seen


class KvThreshold:
    """Refuses while more than `share` of the pool is in use."""

    def __init__(self, share: float) -> None:
        self._share = share

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While there is memory."""
        return seen.kv_usage < self._share

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
