"""A threshold on the KV pool's usage, as the engine's metrics tell it."""

from surgetank.admission.policies.rule import Met, Seen
from surgetank.telemetry.vocabulary import Reason


class KvThreshold:
    """Refuses while more than `share` of the pool is in use."""

    def __init__(self, share: float) -> None:
        self._share = share

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While there is memory."""
        return seen.kv_usage < self._share

    def met(self, prompt: int, seen: Seen) -> Met:
        """The limit."""
        return Met(Reason.KV_PRESSURE, seen.kv_usage, self._share, "kv_threshold")

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
