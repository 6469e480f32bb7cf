"""A codec without words: simulated tokens have no text, and cost none of the run's time."""

from collections.abc import Iterable, Sequence

from surgetank.engine.api import ModelCard
from surgetank.engine.text.codec import TextCodec
from surgetank.engine.text.detokenizer import Detokenizer


class MuteText(Detokenizer):
    """Turns every token into nothing."""

    def __init__(self) -> None:
        self.matched: str | None = None

    def feed(self, ids: Iterable[int]) -> str:
        """No text."""
        return ""

    def flush(self) -> str:
        """No text either."""
        return ""


class MuteCodec(TextCodec):
    """Stands in for the tokenizer that a simulated model does not have; it encodes nothing."""

    def __init__(self, card: ModelCard) -> None:
        del card

    def detokenizer(self, stop: Sequence[str] = (), min_tokens: int = 0) -> Detokenizer:
        """A new mute choice."""
        return MuteText()
