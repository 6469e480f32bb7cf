"""How many tokens a prompt has whose tokenizer we do not know: learned from what answers tell.

tokens = characters / r, with r the mean of characters per token of late (an exponentially weighted
mean of both sums, so that long prompts count by their length). Before any answer told, r = 4, which
is English; a wrong r makes all waits wrong by one factor, which gamma of the wait law corrects.
"""

_CHARACTERS_PER_TOKEN = 4.0
_WEIGHT = 0.02  # of the newest prompt
_FIRST = 1000.0  # characters that the assumption is worth


class PromptSizes:
    """Learns characters per token."""

    def __init__(self, beginning: int = 0) -> None:
        """`beginning`: how many of a prompt's first characters tell where it belongs; 0: none."""
        self.beginning = beginning
        self._characters = _FIRST
        self._tokens = _FIRST / _CHARACTERS_PER_TOKEN

    @property
    def ratio(self) -> float:
        """Characters per token."""
        return self._characters / self._tokens

    def tokens(self, characters: int) -> int:
        """An estimate, at least 1."""
        return max(1, round(characters / self.ratio))

    def observe(self, characters: int, tokens: int) -> None:
        """An answer told how many tokens its prompt had; what has no text teaches nothing."""
        if characters > 0 and tokens > 0:
            self._characters += _WEIGHT * (characters - self._characters)
            self._tokens += _WEIGHT * (tokens - self._tokens)
