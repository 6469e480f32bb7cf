"""Static caps on the engine's own queue: requests (SGLang's max_queued_requests), or tokens."""

import math

from surgetank.control.lab.rivals.door import Seen


class QueueCap:
    """Refuses what would make the engine's line longer than `requests`, or `tokens` of prompts."""

    def __init__(self, requests: float = math.inf, tokens: float = math.inf) -> None:
        self._requests = requests
        self._tokens = tokens

    def admits(self, now: float, prompt: int, seen: Seen) -> bool:
        """While the line is short."""
        return seen.waiting < self._requests and seen.waiting_tokens + prompt <= self._tokens

    def ended(self, began: float, now: float, ok: bool, seen: Seen) -> None:
        """Nothing to learn."""
