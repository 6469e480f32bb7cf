"""Characters per token are learned from what answers tell."""

import pytest

from surgetank.admission.prompt_size import PromptSizes


def test_a_prompt_of_unknown_tokenizer_has_a_quarter_of_its_characters() -> None:
    assert PromptSizes().tokens(4000) == 1000
    assert PromptSizes().tokens(0) == 1


def test_the_ratio_follows_what_answers_tell() -> None:
    sizes = PromptSizes()
    for _ in range(300):
        sizes.observe(600, 400)
    assert sizes.ratio == pytest.approx(1.5, rel=0.01)
    assert sizes.tokens(1500) == pytest.approx(1000, rel=0.01)


def test_what_has_no_text_teaches_nothing() -> None:
    sizes = PromptSizes()
    sizes.observe(0, 400)
    sizes.observe(400, 0)
    assert sizes.ratio == pytest.approx(4.0)
