"""Evidence that a canary's candidate does worse, valid whenever one looks at it.

A share p of the calls, chosen by a hash, is the candidate's. If it does no worse, then of the calls
that were answered well each is one of the candidate's with a chance of p or more, whatever the load
does: the choice knows nothing of it. So with X = 1 for the candidate's calls and 0 for the others

    E = product of (1 + b * w * (p - X))        0 <= w <= 1, 0 < b < 1 / (1 - p)

is at most 1 in expectation after each factor, and Ville's inequality bounds the chance that it
ever reaches 1/alpha, at any time and however often it is looked at, by alpha. The bet

    b = d / (1 - p * d)

makes E the likelihood ratio of "the candidate serves a share d less" to "both serve the same" (the
sequential probability ratio test), and grows fastest when that is so. d is not known, so E is the
mean over several; the mean keeps the bound. With weights w, a call's cost in engine-seconds, cut at
a cap, it sees also a candidate that answers as many calls and less work; half of the bets do so.

Bad calls (answered late) are tested the same way with X - p0 in place of p - X, where p0 is the
candidate's share of them if it were late `margin` times as often as the other.

Sources: Wald 1945, Sequential Tests of Statistical Hypotheses; Ville 1939; Shafer 2021, Testing by
betting; Johari, Koomen, Pekelis, Walsh 2022, Always Valid Inference.
"""

import math

FALLS = (0.05, 0.1, 0.2, 0.4, 0.8)  # d
RISES = (1.5, 2.0, 4.0, 8.0)  # times as many as p0 allows
MARGIN = 1.5


class Evidence:
    """A mean of bets. `value` is what an odds-maker would have made of 1."""

    def __init__(self, null: float, bets: list[tuple[float, bool]]) -> None:
        """`null`: the candidate's share if it does no worse; each bet and whether it is weighted.
        A positive bet wins on the other arm's calls, a negative one on the candidate's."""
        self._null = null
        self._bets = bets
        self._logs = [0.0] * len(bets)

    def saw(self, *, candidate: bool, weight: float = 1.0) -> None:
        """One call; `weight` 0 to 1, known before the call was assigned to its arm."""
        surprise = self._null - candidate
        for index, (bet, weighted) in enumerate(self._bets):
            self._logs[index] += math.log1p(bet * (weight if weighted else 1.0) * surprise)

    @property
    def value(self) -> float:
        """E: 1 at first; 1/alpha is significant at alpha."""
        return sum(math.exp(min(700.0, log)) for log in self._logs) / len(self._logs)


def fewer(share: float) -> Evidence:
    """That the candidate answers less, where `share` of the calls is its own."""
    bets = [fall / (1.0 - share * fall) for fall in FALLS]
    return Evidence(share, [(bet, weighted) for bet in bets for weighted in (False, True)])


def more(share: float, margin: float = MARGIN) -> Evidence:
    """That the candidate is late more than `margin` times as often."""
    null = share * margin / (share * margin + 1.0 - share)
    return Evidence(null, [(-(rise - 1.0) / (1.0 + null * (rise - 1.0)), False) for rise in RISES])


def spent(alpha: float, window: int) -> float:
    """The part of `alpha` that the n-th window (from 1) may use up; all of them add up to it."""
    return alpha * 6.0 / (math.pi * window) ** 2
