"""Encoding, special tokens and single tokens, for both families of tokenizers."""

import json

import pytest
from tests.fakes import tiny_card
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from surgetank.engine.api import ModelCard
from surgetank.engine.text.codec import TextCodec, TooLong


def sentencepiece_card(**changes: object) -> ModelCard:
    """A tokenizer that spells as Llama 2's: `▁` for a space, `<0x..>` for a rare byte."""
    words = [
        "<unk>",
        "<s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "h",
        "i",
        "▁h",
        "▁hi",
    ]
    merges = [("▁", "h"), ("▁h", "i")]
    bpe = models.BPE(
        vocab={word: i for i, word in enumerate(words)},
        merges=merges,
        unk_token="<unk>",
        byte_fallback=True,
    )
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    return tiny_card(tokenizer=tokenizer.to_str(), bos_token="<s>", **changes)


def test_bos_comes_first_and_never_twice() -> None:
    plain, with_bos = TextCodec(tiny_card()), TextCodec(tiny_card(add_bos=True))
    bos = plain.encode("<|endoftext|>")
    assert len(bos) == 1
    assert plain.encode("he") == [256]
    assert with_bos.encode("he") == [*bos, 256]
    assert with_bos.encode("<|endoftext|>he") == [*bos, 256]


def test_truncation_and_padding_of_the_file_are_not_obeyed() -> None:
    card = tiny_card()
    tokenizer = Tokenizer.from_str(card.tokenizer)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    codec = TextCodec(tiny_card(tokenizer=tokenizer.to_str()))
    assert codec.encode("xyzxyz") == TextCodec(card).encode("xyzxyz")


def test_a_token_as_text_and_as_bytes() -> None:
    codec = TextCodec(tiny_card())
    first, second = codec.encode("é")
    assert codec.token_bytes(first) + codec.token_bytes(second) == "é".encode()
    assert codec.token(first) == "\ufffd"
    assert codec.token(256) == "he"
    assert codec.token(codec.encode("<|im_end|>")[0]) == "<|im_end|>"
    assert codec.token_bytes(10**9) == b""
    assert codec.token_id("<|im_end|>") == codec.encode("<|im_end|>")[0]
    assert codec.token_id("no token") is None


def test_sentencepiece_tokens_keep_the_space_before_a_word() -> None:
    codec = TextCodec(sentencepiece_card(add_bos=True))
    ids = codec.encode("hi hi é")
    assert codec.token_bytes(ids[1]) == b" hi"
    assert codec.detokenizer().feed(ids) == " hi hi é"


def test_a_text_that_is_sure_to_be_too_long_is_told_so() -> None:
    codec = TextCodec(tiny_card())
    longest = len("<|endoftext|>")
    assert len(codec.encode("x" * 4 * longest, most=4)) > 4  # not sure before it is cut
    with pytest.raises(TooLong) as caught:
        codec.encode("x" * (4 * longest + 1), most=4)
    assert (caught.value.fewest, caught.value.most) == (5, 4)
    with pytest.raises(TooLong):
        codec.encode_chat([{"role": "user", "content": ""}] * 5, most=4)


@pytest.mark.parametrize("change", ["normalizer", "stripping token", "dropped spaces"])
def test_nothing_is_sure_where_a_tokenizer_may_shrink_a_text(change: str) -> None:
    tokenizer = Tokenizer.from_str(tiny_card().tokenizer)
    if change == "normalizer":
        tokenizer.normalizer = normalizers.Strip()
    elif change == "stripping token":
        tokenizer.add_special_tokens([AddedToken("<end>", lstrip=True, special=True)])
    else:
        spaces = pre_tokenizers.Split(" ", "removed")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, tokenizer.pre_tokenizer])
    codec = TextCodec(tiny_card(tokenizer=tokenizer.to_str()))
    assert len(codec.encode(" " * 1000 + "<end>", most=4)) > 0


def test_text_without_utf8_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        TextCodec(tiny_card()).encode("\ud800")


def test_unusable_tokenizers_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="tokenizer of tiny"):
        TextCodec(tiny_card(tokenizer="{}"))
    tokenizer = json.loads(tiny_card().tokenizer) | {"decoder": {"type": "WordPiece"}}
    tokenizer["decoder"] |= {"prefix": "##", "cleanup": True}
    with pytest.raises(ValueError, match="WordPiece; supported: ByteLevel"):
        TextCodec(tiny_card(tokenizer=json.dumps(tokenizer)))
    with pytest.raises(ValueError, match="no token '<bos>'"):
        TextCodec(tiny_card(add_bos=True, bos_token="<bos>"))
