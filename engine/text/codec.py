"""Text to token ids and back, from what the model card says: no torch, no files."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from surgetank.engine.api import ModelCard
from surgetank.engine.text.chat import ChatTemplate, Message
from surgetank.engine.text.detokenizer import Detokenizer
from surgetank.engine.text.pieces import Pieces
from surgetank.telemetry.clock import Clock, SystemClock


class TooLong(ValueError):
    """A text of more tokens than are wanted, however it is cut; it was not tokenised."""

    def __init__(self, fewest: int, most: int) -> None:
        super().__init__(f"at least {fewest} tokens; allowed: up to {most}")
        self.fewest = fewest
        self.most = most


class TextCodec:
    """One model's tokenizer and chat template. Encoding is safe from other threads.

    ValueError when the card's tokenizer cannot be read.
    """

    def __init__(self, card: ModelCard, clock: Clock | None = None) -> None:
        """`clock`: what strftime_now in a chat template tells; the system's when None."""
        try:
            self._tokenizer: Tokenizer = Tokenizer.from_str(card.tokenizer)
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"tokenizer of {card.name}: {error}") from error
        # A tokenizer.json may carry its training's truncation and padding.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._pieces = Pieces(self._tokenizer, card.tokenizer)
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = frozenset(i for i, token in added.items() if token.special)
        self._bos = self._bos_id(card)
        self._chat = ChatTemplate(
            card.chat_template,
            clock or SystemClock(),
            bos_token=card.bos_token,
            eos_token=card.eos_token,
        )

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """The ids of a text, after the beginning-of-sequence id where the model wants one.

        ValueError for text that is not valid Unicode; TooLong, at no cost, for one that is sure to
        have more than `most` ids. Longer ones than that may come back all the same.
        """
        ids = self._ids(text, most)
        if self._bos is not None and ids[:1] != [self._bos]:
            ids.insert(0, self._bos)
        return ids

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        most: int | None = None,
    ) -> list[int]:
        """The ids of a conversation; the template alone decides on special tokens.

        ValueError, with a sentence for the client, when the template does not take the messages;
        TooLong as in encode(), and for more messages than `most`: each is one token or more.
        """
        if most is not None and len(messages) > most:
            raise TooLong(len(messages), most)
        return self._ids(
            self._chat.render(messages, add_generation_prompt=add_generation_prompt, tools=tools),
            most,
        )

    def token_id(self, token: str) -> int | None:
        """The id of a token by its name in the vocabulary; None for one that there is not."""
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def token(self, token_id: int) -> str:
        """A token as text; bytes that are no whole character show as U+FFFD."""
        return self._pieces[token_id].decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """A token's exact bytes; empty for an id that the tokenizer does not know."""
        return self._pieces[token_id]

    def detokenizer(self, stop: Sequence[str] = (), min_tokens: int = 0) -> Detokenizer:
        """For one choice's output: special tokens are left out, stop strings end it."""
        return Detokenizer(self._pieces, self._special, stop, min_tokens)

    def _ids(self, text: str, most: int | None) -> list[int]:
        if most is not None and self._pieces.longest is not None:
            fewest = -(-len(text) // self._pieces.longest)
            if fewest > most:
                raise TooLong(fewest, most)
        try:
            # As a batch of one: unlike encode(), this lets other threads run meanwhile.
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
            return list(encoding.ids)
        except TypeError as error:  # the library's answer to a str without UTF-8
            raise ValueError("the text holds a lone surrogate; allowed: valid Unicode") from error

    def _bos_id(self, card: ModelCard) -> int | None:
        if not card.add_bos:
            return None
        token_id = self.token_id(card.bos_token)
        if token_id is None:
            raise ValueError(f"tokenizer of {card.name}: no token {card.bos_token!r} (bos_token)")
        return token_id
