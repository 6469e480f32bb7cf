"""Prompts of the right length: by a tokenizer exactly, by a learned line closely."""

import random

import pytest
from tests.fakes import tiny_tokenizer

from surgetank.control.bench.document import BenchError
from surgetank.control.bench.serve.texts import ByRatio, ByTokenizer, Line, prose


def test_a_line_is_learned_from_probes() -> None:
    line = Line.fit([(8, 21), (48, 101), (192, 389)])
    assert line.base == pytest.approx(5.0)
    assert line.per_word == pytest.approx(2.0)


def test_a_server_that_counts_nothing_is_named() -> None:
    with pytest.raises(BenchError, match="counts no more tokens for more words"):
        Line.fit([(8, 7), (48, 7)])


def test_texts_are_cut_by_the_line() -> None:
    writer = ByRatio(Line(5.0, 2.0))
    rng = random.Random(1)
    assert len(writer.prompt(105, rng).split()) == 50
    assert len(writer.prompt(1, rng).split()) == 1


def test_a_tokenizer_cuts_exactly() -> None:
    writer = ByTokenizer(tiny_tokenizer(), base=3)
    rng = random.Random(1)
    for tokens in (4, 17, 100, 999):
        assert writer.count(writer.prompt(tokens, rng)) == tokens - 3
    assert writer.count(writer.prompt(1, rng)) == 1


def test_no_two_prompts_begin_alike() -> None:
    rng = random.Random(1)
    openings = {" ".join(prose(100, rng).split()[:4]) for _ in range(300)}
    assert len(openings) == 300


def test_a_long_text_is_prose() -> None:
    assert "rain that arrives faster than the valley can pass it on" in prose(800, random.Random(1))
