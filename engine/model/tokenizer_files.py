"""What a model says about its text side: tokenizer, chat template, special tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """Everything needed to turn text into token ids and back, as plain data."""

    tokenizer_json: str  # the text of a tokenizer.json
    chat_template: str  # Jinja; empty when the model has none
    bos_token: str  # empty when the model has none
    eos_token: str
    eos_token_ids: tuple[int, ...]  # any of these ends a sequence
    add_bos: bool  # a plain prompt begins with bos_token; encode without special tokens, prepend it
