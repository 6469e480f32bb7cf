"""Text released token by token: whole characters, stop strings, and nothing lost or repeated."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import tiny_card, tiny_tokenizer

from surgetank.engine.text.codec import TextCodec

CODEC = TextCodec(tiny_card())
TOKENIZER = tiny_tokenizer()
IDS = st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40)


def feeds(text: str, stop: Sequence[str] = (), min_tokens: int = 0) -> list[str]:
    """What each token of a text releases, and the flush."""
    detokenizer = CODEC.detokenizer(stop, min_tokens)
    return [*(detokenizer.feed([i]) for i in CODEC.encode(text)), detokenizer.flush()]


def test_a_character_waits_for_its_last_byte() -> None:
    assert feeds("a世b") == ["a", "", "", "世", "b", ""]
    assert feeds("🙂") == ["", "", "", "🙂", ""]


def test_bytes_that_can_become_no_character_are_replaced_and_hold_nothing_up() -> None:
    first_byte = CODEC.encode("é")[0]
    detokenizer = CODEC.detokenizer()
    released = [detokenizer.feed([i]) for i in [first_byte] * 3 + CODEC.encode("ok")]
    assert released == ["", "\ufffd", "\ufffd", "\ufffdo", "k"]
    assert detokenizer.feed([first_byte]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_special_tokens_have_no_text() -> None:
    ids = CODEC.encode("a<|im_end|>b")
    assert len(ids) == 3
    assert CODEC.detokenizer().feed(ids) == "ab"


@given(IDS, st.integers(1, 5))
def test_parts_add_up_to_the_full_decode(ids: list[int], size: int) -> None:
    detokenizer = CODEC.detokenizer()
    parts = [detokenizer.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    assert "".join(parts) + detokenizer.flush() == TOKENIZER.decode(ids, skip_special_tokens=True)


@given(st.text(max_size=60))
def test_text_survives_the_round_trip(text: str) -> None:
    assert "".join(feeds(text)) == text


def test_text_that_may_begin_a_stop_string_is_held_back() -> None:
    assert feeds("xENy", stop=["END"]) == ["x", "", "", "ENy", ""]
    assert feeds("xEN", stop=["END"]) == ["x", "", "", "EN"]


def test_text_from_the_stop_string_on_is_dropped() -> None:
    detokenizer = CODEC.detokenizer(["END"])
    assert detokenizer.feed(CODEC.encode("one END two")) == "one "
    assert (detokenizer.stopped, detokenizer.matched) == (True, "END")
    assert detokenizer.feed(CODEC.encode("three")) == ""
    assert detokenizer.flush() == ""


def test_the_stop_string_that_ends_first_wins() -> None:
    assert "".join(feeds("zabcd", stop=["abcd", "bc"])) == "za"
    assert "".join(feeds("zabcd", stop=["c", "bc"])) == "za"  # both end together: the longer


def test_a_stop_string_of_many_byte_characters() -> None:
    assert "".join(feeds("ab世界cd", stop=["界"])) == "ab世"


def test_stop_strings_do_not_count_before_min_tokens() -> None:
    assert "".join(feeds("a.b.c", stop=["."], min_tokens=3)) == "a.b"
    assert "".join(feeds("a.b.c", stop=["."], min_tokens=2)) == "a"
    assert "".join(feeds("a.b.c", stop=["."], min_tokens=5)) == "a.b.c"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        CODEC.detokenizer([""])


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(1, 5),
)
def test_stopping_does_not_depend_on_how_the_text_was_cut(
    text: str, stop: list[str], size: int
) -> None:
    ids = CODEC.encode(text)
    detokenizer = CODEC.detokenizer(stop)
    parts = [detokenizer.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    ends = [(at + len(s), at) for s in stop if (at := text.find(s)) >= 0]
    assert "".join(parts) + detokenizer.flush() == (text[: min(ends)[1]] if ends else text)
    assert detokenizer.stopped == bool(ends)
