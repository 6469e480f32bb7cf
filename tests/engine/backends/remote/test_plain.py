"""An engine that hangs on plain answers is silent for longer than such an answer can take."""

from math import inf

import pytest

from surgetank.engine.backends.remote.plain import PlainAnswers


def seen(*answers: tuple[float, int | None]) -> PlainAnswers:
    """One that gave these, each of so many seconds and tokens."""
    plain, now = PlainAnswers(), 0.0
    for number, (seconds, tokens) in enumerate(answers):
        plain.sent(number, 100, now)
        now += seconds
        plain.answered(number, tokens, now)
    return plain


@pytest.mark.parametrize(
    ("answers", "max_tokens", "patience"),
    [
        ([], 100, None),  # nobody knows how long it takes
        ([(2.0, 20)], 100, 60.0),  # at least
        ([(2.0, 20)], 1000, 300.0),  # .1 s a token, 1000 of them, and three times that
        ([(40.0, 4000)], 100, 120.0),  # the longest so far, three times
        ([(2.0, 20), (9.0, 30)], 1000, 900.0),  # of tokens the slowest
        ([(2.0, 20)], 0, inf),  # it may be as long as it likes
        ([(30.0, None)], 0, 90.0),  # it does not tell how many tokens: only whole answers count
    ],
)
def test_its_patience_is_what_was_seen_and_may_be_asked(
    answers: list[tuple[float, int | None]], max_tokens: int, patience: float | None
) -> None:
    plain = seen(*answers)
    plain.sent(99, max_tokens, 1000.0)
    assert plain.patience == patience
    late = 0.0 if patience in (None, inf) else 5.0
    assert plain.overdue(1000.0 + (patience or 0.0) + 5.0 if patience != inf else 1e9) == late


def test_it_is_silent_since_the_last_answer_or_the_first_request() -> None:
    plain = seen((1.0, 10))
    plain.sent(10, 10, 100.0)
    plain.sent(11, 10, 150.0)
    assert (plain.overdue(160.0), plain.overdue(161.0)) == (0.0, 1.0)
    plain.answered(10, 10, 162.0)  # 62 s: three times that is its patience from now on
    assert plain.overdue(162.0 + 187.0) == 1.0
    plain.left(11)
    assert plain.overdue(1e6) == 0.0
    plain.sent(12, 10, 1e6)
    assert plain.overdue(1e6 + 1.0) == 0.0


def test_requests_that_are_given_up_do_not_hide_that_nothing_comes() -> None:
    plain = seen((1.0, 10))
    for number in range(10, 20):
        plain.sent(number, 10, 10.0 * number)
        plain.left(number - 1)
    assert plain.overdue(190.0) == 190.0 - 100.0 - 60.0


def test_an_answer_to_nobody_counts_nothing() -> None:
    plain = PlainAnswers()
    plain.answered(1, 5, 10.0)
    assert plain.patience is None
