"""What each token is in bytes, for the two ways in which tokenizers spell bytes as characters."""

import re
from typing import Any

import msgspec
from tokenizers import Tokenizer

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
# Of the library's ways to cut a text before its tokens are looked up, those that drop nothing.
_LOSSLESS = frozenset({"ByteLevel", "Split", "Digits", "Punctuation"})


class _TokenizerFile(msgspec.Struct):
    """The parts of a tokenizer.json that the `tokenizers` library does not tell."""

    decoder: dict[str, Any] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None


class Pieces(dict[int, bytes]):
    """Token id -> the bytes that it adds to the output; filled as tokens are seen.

    Byte-level BPE (GPT-2's alphabet: one printable character per byte) and SentencePiece with byte
    fallback (`▁` for a space, `<0xE2>` for a byte) both map token by token, so that an output is
    the concatenation of its pieces. An id that the tokenizer does not know (models pad their
    vocabulary) is empty. ValueError for any other kind of tokenizer.

    `longest`: no token stands for more characters of a text; None where that cannot be told.
    """

    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._added = {i: t.content for i, t in tokenizer.get_added_tokens_decoder().items()}
        file = msgspec.json.decode(source, type=_TokenizerFile)
        kinds = _kinds(file.decoder, "decoders")
        self.longest = _longest(tokenizer, file) if "ByteLevel" in kinds else None
        if "ByteLevel" in kinds:
            self._spell = _byte_level
        elif kinds & {"ByteFallback", "Metaspace"}:
            self._spell = _sentence_piece
        else:
            raise ValueError(
                f"tokenizer: its decoder is {'+'.join(sorted(kinds)) or 'absent'};"
                " supported: ByteLevel, ByteFallback, Metaspace"
            )

    def __missing__(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        token = self._tokenizer.id_to_token(token_id) if added is None else None
        if added is not None:
            piece = added.encode()
        else:
            piece = b"" if token is None else self._spell(token)
        self[token_id] = piece
        return piece


def _kinds(component: dict[str, Any] | None, parts: str) -> set[str]:
    """A component's type, and those of its parts, which stand under the name `parts`."""
    if component is None:
        return set()
    inner = (_kinds(part, parts) for part in component.get(parts, ()))
    return {component["type"]}.union(*inner) - {"Sequence"}


def _longest(tokenizer: Tokenizer, file: _TokenizerFile) -> int | None:
    """Of a byte-level tokenizer; None when it may drop or swallow parts of a text."""
    added = tokenizer.get_added_tokens_decoder().values()
    swallows = any(token.lstrip or token.rstrip for token in added)
    cuts = _kinds(file.pre_tokenizer, "pretokenizers")
    drops = cuts - _LOSSLESS or b'"Removed"' in msgspec.json.encode(file.pre_tokenizer)
    if swallows or drops or file.normalizer is not None:
        return None
    return max(map(len, tokenizer.get_vocab()))


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for the 256 bytes: printable ones stand for themselves, the others for
    the code points from 256 on (`bytes_to_unicode` in its encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


BYTE_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    try:
        return bytes([BYTE_ALPHABET[char] for char in token])
    except KeyError:  # not spelled in the alphabet: the token is plain text
        return token.encode()


def _sentence_piece(token: str) -> bytes:
    byte = _BYTE_FALLBACK.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()
