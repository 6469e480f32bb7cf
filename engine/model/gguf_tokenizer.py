"""The tokenizer inside a GGUF file's metadata, rebuilt as the text of a tokenizer.json."""

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers.models import BPE

from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.tokenizer_files import TokenizerFiles

PREFIX = "tokenizer.ggml."
SPACE = "▁"


class TokenType(IntEnum):
    """GGUF's kinds of token that need care."""

    CONTROL = 3
    USER_DEFINED = 4


# How text is cut before merging, as the model families publish it. Byte-level merging follows.
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (rf"{_SUFFIXES}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",),
    "qwen2": (rf"{_SUFFIXES}|{_WORDS}|\p{{N}}|{_REST}",),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
WHOLE_WORDS_FIRST = ("llama-bpe",)  # a piece that is a token as it stands is not merged
NFC = ("qwen2",)  # text is composed before it is cut
BEGINS_WITH_BOS = ("llama-bpe",)  # unless the metadata says otherwise


def read_tokenizer(path: Path, meta: Mapping[str, Any]) -> TokenizerFiles:
    """Rebuild the tokenizer of a GGUF file; ModelError when it has none or an unknown kind."""
    model, tokens = meta.get(PREFIX + "model"), meta.get(PREFIX + "tokens")
    if model is None or not tokens:
        raise ModelError(path, "the file holds no tokenizer")
    cut = meta.get(PREFIX + "pre", "default")
    if model == "gpt2":
        tokenizer = _byte_level(path, meta, tokens, cut)
    elif model == "llama":
        tokenizer = _sentence_piece(path, meta, tokens)
    else:
        raise ModelError(path, f"unsupported tokenizer {model!r}; supported: gpt2, llama")
    _add_special(tokenizer, meta, tokens)

    def text(key: str) -> str:
        index = meta.get(f"{PREFIX}{key}_token_id")
        return tokens[index] if index is not None and index < len(tokens) else ""

    ends = (meta.get(f"{PREFIX}{key}_token_id") for key in ("eos", "eot", "eom"))
    default_bos = model == "llama" or cut in BEGINS_WITH_BOS
    return TokenizerFiles(
        tokenizer_json=tokenizer.to_str(),
        chat_template=meta.get("tokenizer.chat_template", ""),
        bos_token=text("bos"),
        eos_token=text("eos"),
        eos_token_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        add_bos=bool(meta.get(PREFIX + "add_bos_token", default_bos)),
    )


def _byte_level(path: Path, meta: Mapping[str, Any], tokens: list[str], cut: str) -> Tokenizer:
    if cut not in SPLITS:
        raise ModelError(
            path, f"unsupported pre-tokenizer {cut!r}; supported: {', '.join(sorted(SPLITS))}"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in meta.get(PREFIX + "merges", ())]
    tokenizer = Tokenizer(BPE(_vocabulary(tokens), merges, ignore_merges=cut in WHOLE_WORDS_FIRST))
    if cut in NFC:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre.Split(Regex(pattern), "isolated") for pattern in SPLITS[cut]]
    tokenizer.pre_tokenizer = pre.Sequence(
        [*splits, pre.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(path: Path, meta: Mapping[str, Any], tokens: list[str]) -> Tokenizer:
    scores = meta.get(PREFIX + "scores")
    if not scores or len(scores) != len(tokens):
        raise ModelError(path, "the tokenizer has no score for each of its tokens")
    unknown = meta.get(PREFIX + "unknown_token_id", 0)
    tokenizer = Tokenizer(
        BPE(
            _vocabulary(tokens),
            _merges_by_score(tokens, scores),
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = meta.get(PREFIX + "add_space_prefix", True)
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), spaces] if prefix else [spaces]
    )
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def _merges_by_score(tokens: list[str], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the pair whose result scores best: the same pairs, best result first."""
    known = {token: index for index, token in enumerate(tokens)}
    pairs = [
        (-scores[index], index, cut, token[:cut], token[cut:])
        for token, index in known.items()
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return [(left, right) for *_, left, right in sorted(pairs)]


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def _add_special(tokenizer: Tokenizer, meta: Mapping[str, Any], tokens: list[str]) -> None:
    types = meta.get(PREFIX + "token_type", ())
    for token, kind in zip(tokens, types):
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED):
            special = kind == TokenType.CONTROL
            tokenizer.add_tokens([AddedToken(token, special=special, normalized=False)])
