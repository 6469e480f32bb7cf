"""The default model's tokenizer and chat template agree with the libraries that define them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import tiny_card
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from surgetank.engine.model.load import open_checkpoint
from surgetank.engine.model.locate import resolve
from surgetank.engine.model.tokenizer_files import TokenizerFiles
from surgetank.engine.text.codec import TextCodec

pytestmark = pytest.mark.model


class Speaker:
    """The default model's text side, ours and the reference's."""

    def __init__(self, files: TokenizerFiles) -> None:
        self.reference = Tokenizer.from_str(files.tokenizer_json)
        fast: Any = PreTrainedTokenizerFast
        self.transformers = fast(tokenizer_object=self.reference)
        self.transformers.chat_template = files.chat_template
        self.codec = TextCodec(
            tiny_card(
                tokenizer=files.tokenizer_json,
                chat_template=files.chat_template,
                bos_token=files.bos_token,
                eos_token=files.eos_token,
                add_bos=files.add_bos,
            )
        )


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker(open_checkpoint(resolve(None)).tokenizer())


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "What is a surge tank?"}],
        [
            {"role": "system", "content": "You are brief.\n"},
            {"role": "user", "content": "héllo 世界 🙂"},
            {"role": "assistant", "content": "  Hi! "},
            {"role": "user", "content": ""},
        ],
    ],
)
def test_chat_prompts_are_those_of_transformers(
    speaker: Speaker, messages: list[dict[str, str]]
) -> None:
    expected = speaker.transformers.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert speaker.codec.encode_chat(messages) == expected


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 7))
def test_random_tokens_in_parts_add_up_to_the_full_decode(
    speaker: Speaker, data: st.DataObject, size: int
) -> None:
    top = speaker.reference.get_vocab_size() - 1
    ids = data.draw(st.lists(st.integers(0, top), max_size=50))
    detokenizer = speaker.codec.detokenizer()
    parts = [detokenizer.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    whole = speaker.reference.decode(ids, skip_special_tokens=True)
    assert "".join(parts) + detokenizer.flush() == whole


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_comes_back_as_the_library_decodes_it(speaker: Speaker, text: str) -> None:
    """Not always as it went in: this vocabulary lacks control characters and some rare bytes."""
    detokenizer = speaker.codec.detokenizer()
    ids = speaker.codec.encode(text)
    whole = speaker.reference.decode(ids, skip_special_tokens=True)
    assert "".join(detokenizer.feed([i]) for i in ids) + detokenizer.flush() == whole
    if text.isascii() and text.isprintable():
        assert whole == text
