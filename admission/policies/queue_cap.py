"""Static caps on the line: requests (SGLang's max_queued_requests), or tokens."""

import math

from surgetank.admission.policies.rule import Met, Seen
from surgetank.telemetry.vocabulary import Reason


class QueueCap:
    """Refuses what would make the line longer than `requests`, or `tokens` of prompts."""

    def __init__(self, requests: float = math.inf, tokens: float = math.inf) -> None:
        self._requests = requests
        self._tokens = tokens

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While the line is short."""
        return seen.waiting < self._requests and seen.waiting_tokens + prompt <= self._tokens

    def met(self, prompt: int, seen: Seen) -> Met:
        """The cap that it would pass."""
        if seen.waiting >= self._requests:
            return Met(Reason.QUEUE_REQUESTS, seen.waiting + 1, self._requests, "queue_cap")
        tokens = seen.waiting_tokens + prompt
        return Met(Reason.QUEUE_TOKENS, tokens, self._tokens, "queue_cap_tokens")

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
