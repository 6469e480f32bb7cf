"""Prompts of a wanted number of tokens: prose, cut by a tokenizer or by what probes have shown."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenizers import Tokenizer

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.load.words import WORDS

_PROSE = """
The river rises in the hills above the old town and takes three days to reach the sea. In a dry
year a child can cross it on stones, and the mill at the bridge stands still for weeks. When the
snow melts early the water comes all at once, brown and fast, and the lower streets are closed.
People who live there keep their books upstairs and know the sound of a full drain. Every house
has a mark on its wall with a date, and the highest of them is older than the church.
An engineer who came to measure the stream said that a flood is not caused by rain alone. It is
caused by rain that arrives faster than the valley can pass it on, and by everybody opening their
gates at the same hour. A tank beside the pipe does not make the pipe wider, he explained, but it
gives the first wave a place to wait. Without it the wave runs back and forth, and each return is
a little stronger than the one before. With it the pressure falls, the pump keeps its pace, and
nobody downstream notices that anything has happened.
The town built its first reservoir in the year after the great flood and argued about the cost for
a generation. Farmers wanted the water in summer, the mill wanted it in autumn, and the council
wanted to be told what would happen next. So a clerk was paid to read the gauge each morning and
to write the number down. His notebooks fill a shelf and show that the worst days began quietly,
with a small change that nobody thought worth a walk up the hill.
Today the gates are moved by motors and the gauge reports by itself. The rule is still the same:
let in what can be carried, make the rest wait where waiting does no harm, and say early and
plainly to those who must come back later when that should be. It is not a clever rule, but the
streets by the bridge have been dry ever since.
"""
_WORDS = tuple(_PROSE.split())
_OPENING = 4  # random words first, so that no two prompts share a beginning and no cache helps


@dataclass(frozen=True, slots=True)
class Line:
    """Prompt tokens as a server counts them: `base` of its own and so many for each word."""

    base: float
    per_word: float

    @classmethod
    def fit(cls, points: Sequence[tuple[int, int]]) -> "Line":
        """Least squares through (words, tokens). Raises BenchError when more words are no more
        tokens."""
        n = len(points)
        mean_x = sum(x for x, _ in points) / n
        mean_y = sum(y for _, y in points) / n
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
        if slope <= 0:
            raise BenchError(f"the server counts no more tokens for more words: {list(points)}")
        return cls(mean_y - slope * mean_x, slope)


class Writer(Protocol):
    """Writes prompts."""

    def prompt(self, tokens: int, rng: random.Random) -> str:
        """A text that the server counts as about so many tokens, at least one word."""


@dataclass(frozen=True, slots=True)
class ByRatio:
    """Cuts between words, by the measured line."""

    line: Line

    def prompt(self, tokens: int, rng: random.Random) -> str:
        """So many words as the line says."""
        return prose(max(1, round((tokens - self.line.base) / self.line.per_word)), rng)


@dataclass(frozen=True, slots=True)
class ByTokenizer:
    """Cuts where the tokenizer does; `base`: tokens that the server adds of its own."""

    tokenizer: Tokenizer
    base: int = 0

    def prompt(self, tokens: int, rng: random.Random) -> str:
        """The first so many tokens of a text that is long enough."""
        wanted = max(1, tokens - self.base)
        text = prose(wanted + _OPENING, rng)  # no word is less than a token
        encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return text[: encoded.offsets[min(wanted, len(encoded.offsets)) - 1][1]]

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


def prose(words: int, rng: random.Random) -> str:
    """So many words: a few at random, then the prose from anywhere on, as often as needed."""
    opening = rng.choices(WORDS, k=min(words, _OPENING))
    begin = rng.randrange(len(_WORDS))
    rest = (_WORDS[(begin + step) % len(_WORDS)] for step in range(words - len(opening)))
    return " ".join((*opening, *rest))
