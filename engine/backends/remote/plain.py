"""How long an engine may be silent that works on plain answers alone and tells nothing of itself.

Nothing comes of such an answer until it is complete, so that silence is a stall only when it lasts
longer than an answer can take:

    patience = max(60 s, 3 * D, 3 * r * m)

D the longest plain answer so far, r the most seconds that a token of one took, m the most tokens
that one of the requests in it may have, by its own limit or the engine's context. While no answer
has come yet, or one of them has no bound, any silence may be work. Where answers do not tell their
tokens r is not known, and D alone counts.
"""

from math import inf

_LEAST = 60.0  # seconds
_TIMES = 3.0  # what was seen


class PlainAnswers:
    """Those of one engine. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, float]] = {}  # when it was sent; most tokens
        self._moved_at = 0.0  # when one was complete, or there was none and one came
        self._longest = 0.0  # seconds of an answer
        self._per_token = 0.0  # seconds, the most

    def sent(self, request_id: int, max_tokens: int, now: float) -> None:
        """One more; `max_tokens` 0: without a bound."""
        if not self._open:
            self._moved_at = now
        self._open[request_id] = now, max_tokens or inf

    def left(self, request_id: int) -> None:
        """Nobody waits for it any more."""
        self._open.pop(request_id, None)

    def answered(self, request_id: int, tokens: int | None, now: float) -> None:
        """It is complete, with so many tokens."""
        sent_at, _ = self._open.pop(request_id, (None, 0))
        if sent_at is None:
            return
        self._moved_at, seconds = now, now - sent_at
        self._longest = max(self._longest, seconds)
        if tokens:
            self._per_token = max(self._per_token, seconds / tokens)

    @property
    def patience(self) -> float | None:
        """Seconds of silence that are no stall now; None while no answer was seen."""
        if not self._longest:
            return None
        most = max((tokens for _, tokens in self._open.values()), default=0.0)
        each = self._per_token * most if self._per_token else 0.0
        return max(_LEAST, _TIMES * self._longest, _TIMES * each)

    def overdue(self, now: float) -> float:
        """Seconds of silence beyond that; 0 while there is none, or nothing to answer."""
        silent = now - self._moved_at
        if not self._open or silent <= _LEAST:
            return 0.0
        patience = self.patience
        return 0.0 if patience is None else max(0.0, silent - patience)
