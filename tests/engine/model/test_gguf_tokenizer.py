"""Tokenizers rebuilt from GGUF metadata give the ids that the model was trained on."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from tests.engine.model.checkpoints import small_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers import pre_tokenizers as pre
from tokenizers.models import BPE
from transformers import Qwen2Tokenizer

from surgetank.engine.model.errors import ModelError
from surgetank.engine.model.gguf_tokenizer import read_tokenizer
from surgetank.engine.model.locate import resolve

HERE = Path("model.gguf")
TRICKY = (
    "",
    " ",
    "Hello, world!",
    "  two  spaces   and\ttabs\t\t.",
    "line\nline\r\n\n\n   indented\n",
    "I'll can't WE'RE they'd",
    "3.14159 1234567 ½ ٣٤ x2y",
    "naïve café Zürich Straße e\u0301",
    "你好，世界！ こんにちは 안녕하세요 שלום مرحبا",
    "🚰 👩‍👩‍👧‍👦 🇨🇭 ❤️",
    "def f(x):\n    return {'a': x**2, \"b\": [1,2]}  # ok?\n",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_start|>x<|im_end|> <|not_special|>",
    "zero\u200bwidth \u00a0nbsp \u2028 sep \ufeff bom \x00 \x7f",
    "C:\\path\\to https://example.org/a?b=c&d=%20#frag",
)


def byte_level_meta(cut: str) -> dict[str, Any]:
    described = json.loads(small_tokenizer().to_str())["model"]
    vocabulary = sorted(described["vocab"], key=described["vocab"].get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": cut,
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in described["merges"]],
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(vocabulary) - 2),
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.eot_token_id": 5,
        "tokenizer.ggml.bos_token_id": 1,
    }


def _pairs(meta: dict[str, Any]) -> Any:
    return [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]


def rebuilt(meta: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_str(read_tokenizer(HERE, meta).tokenizer_json)


@pytest.mark.model
def test_the_default_tokenizer_equals_its_published_layout() -> None:
    """SmolLM2 publishes: single digits apart, then GPT-2's byte level with its own pattern."""
    reader = GGUFReader(resolve(None))
    meta = {name: field.contents() for name, field in reader.fields.items()}
    tokens = meta["tokenizer.ggml.tokens"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    published = Tokenizer(BPE(vocabulary, _pairs(meta)))
    published.pre_tokenizer = pre.Sequence(
        [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
    )
    published.decoder = decoders.ByteLevel()
    published.add_special_tokens([AddedToken(token, normalized=False) for token in tokens[:17]])
    ours = rebuilt(meta)
    for text in TRICKY:
        assert ours.encode(text).ids == published.encode(text).ids
        assert ours.decode(ours.encode(text).ids, skip_special_tokens=False) == text
    assert ours.encode("<|im_start|>").ids == [1]
    assert ours.decode([1, 4093], skip_special_tokens=True) == "user"


def test_qwen2_equals_transformers() -> None:
    meta = byte_level_meta("qwen2")
    vocabulary = {token: index for index, token in enumerate(meta["tokenizer.ggml.tokens"])}
    theirs = Qwen2Tokenizer(vocab=vocabulary, merges=_pairs(meta))
    for text in TRICKY:
        assert rebuilt(meta).encode(text).ids == theirs.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    ("cut", "text", "pieces"),
    [
        ("llama-bpe", "1234567 a's it'LL", ["123", "456", "7", "Ġa", "'s", "Ġit", "'LL"]),
        ("llama-bpe", "x.\n\n  y\n", ["x", ".ĊĊ", "Ġ", "Ġy", "Ċ"]),
        ("qwen2", "12 (word)", ["1", "2", "Ġ(", "word", ")"]),
        ("gpt-2", "12 it's  ok", ["12", "Ġit", "'s", "Ġ", "Ġok"]),
        ("smollm", "12 it's 3", ["1", "2", "Ġit", "'s", "Ġ", "3"]),
        ("default", "a+b 12345", ["a", "+", "b", "Ġ", "123", "45"]),
    ],
)
def test_text_is_cut_as_the_family_does(cut: str, text: str, pieces: list[str]) -> None:
    pre_tokenizer = rebuilt(byte_level_meta(cut)).pre_tokenizer
    assert pre_tokenizer is not None
    assert [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_special_tokens() -> None:
    files = read_tokenizer(HERE, byte_level_meta("llama-bpe"))
    assert (files.bos_token, files.eos_token) == ("<bos>", "<eos>")
    assert files.eos_token_ids == (0, 5)
    assert files.add_bos
    assert not read_tokenizer(HERE, byte_level_meta("qwen2")).add_bos
    meta = byte_level_meta("qwen2") | {"tokenizer.ggml.add_bos_token": True}
    assert read_tokenizer(HERE, meta).add_bos


def sentence_piece_meta(add_space_prefix: bool) -> dict[str, Any]:
    """Bytes, letters and random longer pieces, each score distinct."""
    rng = random.Random(3)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = [*"▁abcdeé"]
    longer = {"".join(rng.choices(letters, k=rng.randint(2, 5))) for _ in range(200)}
    pieces += letters + sorted(longer)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0] * 259 + rng.sample(range(-9999, 0), len(pieces) - 259),
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(pieces) - 259),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": add_space_prefix,
    }


def joined_by_score(text: str, meta: dict[str, Any]) -> list[int]:
    """SentencePiece's own rule: join the adjacent pair whose result scores best, until none can."""
    ids = {piece: index for index, piece in enumerate(meta["tokenizer.ggml.tokens"])}
    scores, symbols = meta["tokenizer.ggml.scores"], list(text.replace(" ", "▁"))
    while True:
        pairs = [left + right for left, right in itertools.pairwise(symbols)]
        options = [(scores[ids[pair]], -i) for i, pair in enumerate(pairs) if pair in ids]
        if not options:
            break
        place = -max(options)[1]
        symbols[place : place + 2] = [pairs[place]]
    return [
        index
        for symbol in symbols
        for index in ([ids[symbol]] if symbol in ids else [3 + b for b in symbol.encode()])
    ]


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece_joins_by_score(prefix: bool) -> None:
    meta, rng = sentence_piece_meta(prefix), random.Random(4)
    tokenizer = rebuilt(meta)
    for _ in range(200):
        text = "".join(rng.choices("aabbccdeé xü🚰", k=rng.randint(1, 30)))
        ids = tokenizer.encode(text).ids
        assert ids == joined_by_score(" " * prefix + text, meta)
        assert tokenizer.decode(ids) == text


def test_sentence_piece_begins_with_bos() -> None:
    assert read_tokenizer(HERE, sentence_piece_meta(True)).add_bos


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokenizer.ggml.model": None}, "model.gguf: the file holds no tokenizer"),
        ({"tokenizer.ggml.tokens": None}, "model.gguf: the file holds no tokenizer"),
        ({"tokenizer.ggml.model": "bert"}, "unsupported tokenizer 'bert'; supported: gpt2, llama"),
        (
            {"tokenizer.ggml.pre": "tekken"},
            "unsupported pre-tokenizer 'tekken'; supported: default",
        ),
        ({"tokenizer.ggml.model": "llama"}, "no score for each of its tokens"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_tokenizer(HERE, byte_level_meta("gpt-2") | changes)
