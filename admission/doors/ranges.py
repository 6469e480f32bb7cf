"""What one request may ask for, whichever door it came through: one table, checked by each door.

These are the values that make sense at all. What is allowed here and now (the gate's max_n and
max_output_tokens, the model's context) is the gate's to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surgetank.admission.limits import SPECS, Limit

MAX_STOPS = 16  # strings
MAX_STOP_CHARS = 256  # of each
MAX_STOP_IDS = 64
_MAX_COUNT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """A number's allowed values, both ends included."""

    kind: type[int] | type[float]
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"

    @property
    def sentence(self) -> str:
        """For a caller whose numbers come without a type."""
        return f"{'a whole number' if self.kind is int else 'a number'} from {self}"

    def holds(self, value: Any) -> bool:
        """Whether a value is of the kind and in the range; true and false are no numbers."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.kind is int and not isinstance(value, int):
            return False
        return self.low <= value <= self.high


NUMBERS = {
    "max_tokens": Range(int, 1, _MAX_COUNT),
    "min_tokens": Range(int, 0, _MAX_COUNT),
    "temperature": Range(float, 0, 2),
    "top_p": Range(float, 0.0001, 1),
    "top_k": Range(int, -1, _MAX_COUNT),  # -1 and 0: off
    "min_p": Range(float, 0, 1),
    "repetition_penalty": Range(float, 0.01, 10),
    "presence_penalty": Range(float, -2, 2),
    "frequency_penalty": Range(float, -2, 2),
    "seed": Range(int, -(1 << 63), (1 << 63) - 1),
    "logprobs": Range(int, 0, 20),
    "n": Range(int, 1, int(SPECS[Limit.MAX_N].maximum)),
}
TOKEN_ID = Range(int, 0, _MAX_COUNT)


def unknown_id(ids: Sequence[int], vocab_size: int) -> int | None:
    """The first id that is no token of the model; None when all are."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return None
    return next(token_id for token_id in ids if not 0 <= token_id < vocab_size)
