"""Which of the engines that have room for a request gets it.

The least predicted wait: seconds until its own prompt would be read there,

    w_i = (a*(u_i + p) + s_i * (t0 + b*B_i + c*K_i)) / mu_i      s_i = max(1, (u_i + p) / chunk)

with u_i prompt tokens unread there, p its own, B_i the sequences that we have there. So a slow
engine, or one with much to read or decode, gets less. Step models have errors: waits within a tenth
of the least are alike, and the engine with the fewest sequences is taken. Else of two equal engines
one would get everything, for a fitted millisecond, up to its last slot.

A request that begins as others did belongs to an engine that may hold its beginning in its cache
(affinity.py). It goes to the first engine by that preference with

    w_i - min_j w_j <= g_i       g_i = max(gain * a * (tokens of that) / mu_i, min_j w_j / 10)

what the cache would save at most, or nothing to speak of. An engine that was left once so is
crowded, and taken again only where half of g_i is not exceeded: else a hot prefix would flap
between two engines, and be cold in both. One without room is crowded too; requests never wait for
an engine of their own while another has room. With a bound on how much more than others an engine
may get, hashing stays balanced (Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with
bounded loads", 2018); SGLang's cache-aware router, too, leaves affinity when loads drift apart.

While no engine's step model is fitted, the least full engine gets the request. One that has just
turned a request away gets it only where no other has room (pushback.py).
"""

from collections.abc import Sequence

from surgetank.admission.engine_view import Rates
from surgetank.admission.routing.affinity import preference
from surgetank.admission.routing.side import EngineSide, Why
from surgetank.admission.routing.sides import Sides
from surgetank.admission.ticket import Ticket

_BACK = 0.5  # of the gain, within which a crowded engine is taken again
_ALIKE = 0.1  # of the least wait: what is nearer to it is no difference


def wait_at(rates: Rates, unread: float, seqs: int) -> float:
    """w of an engine with so many tokens to read, the request's own included."""
    model = rates.model
    steps = max(1.0, unread / rates.chunk)
    return (model.a * unread + steps * model.seconds(0, seqs, rates.resident)) / rates.drain


def preferred(
    order: Sequence[int],
    waits: Sequence[float | None],
    gains: Sequence[float],
    crowded: Sequence[bool],
) -> tuple[int, set[int]]:
    """The first engine in `order` whose wait is within its gain of the least; and those before it,
    which are crowded. `waits` None: no room there; not all are None."""
    least = min(wait for wait in waits if wait is not None)
    passed: set[int] = set()
    for at in order:
        wait = waits[at]
        if wait is not None and wait - least <= gains[at] * (_BACK if crowded[at] else 1.0):
            return at, passed
        passed.add(at)
    raise ValueError("no engine has room")


class Choice:
    """Chooses among several, and remembers which are crowded."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def pick(
        self, ticket: Ticket, roomy: Sequence[EngineSide], now: float
    ) -> tuple[EngineSide, Why]:
        """One of `roomy`, those with room for it: at least one."""
        roomy = [side for side in roomy if not side.pushback.lasts(now)] or roomy
        if ticket.prefix is not None and self._sides.config.affinity_gain > 0.0:
            return self._by_prefix(ticket, ticket.prefix.key, ticket.prefix.tokens, roomy, now)
        if len(roomy) == 1:
            return roomy[0], Why.ONLY
        ranks = {side: self._rank(side, ticket, now) for side in roomy}
        alike = (1.0 + _ALIKE) * min(wait for wait, *_ in ranks.values())
        near = (side for side in roomy if ranks[side][0] <= alike)
        return min(near, key=lambda side: ranks[side][1:]), Why.WAIT

    def wait(self, side: EngineSide, prompt: int, now: float) -> float | None:
        """w of a prompt of so many tokens there; None while it cannot be known."""
        rates = self._sides.pace(side, now)
        if rates is None:
            return None
        return wait_at(rates, side.backlog.tokens + prompt, side.ledger.seqs)

    def _by_prefix(
        self, ticket: Ticket, key: bytes, tokens: int, roomy: Sequence[EngineSide], now: float
    ) -> tuple[EngineSide, Why]:
        open = self._sides.open
        ranks = {side: self._rank(side, ticket, now) for side in roomy}
        least = min(wait for wait, *_ in ranks.values())
        at, passed = preferred(
            order := preference(key, [side.name for side in open]),
            [ranks[side][0] if side in ranks else None for side in open],
            [max(self._gain(side, tokens, now), _ALIKE * least) for side in open],
            [side.crowded for side in open],
        )
        for each in passed:
            open[each].crowded = True
        chosen = open[at]
        chosen.crowded = False
        if len(roomy) == 1:
            return chosen, Why.ONLY
        homely = at == order[0] or ranks[chosen][0] > least
        return chosen, Why.AFFINITY if homely else Why.WAIT

    def _gain(self, side: EngineSide, tokens: int, now: float) -> float:
        rates = self._sides.pace(side, now)
        if rates is None:
            return 0.0
        return self._sides.config.affinity_gain * rates.model.a * tokens / rates.drain

    def _rank(self, side: EngineSide, ticket: Ticket, now: float) -> tuple[float, int, int]:
        """The lower the better: wait, or how full it is; then how many it has, and had."""
        wait = self.wait(side, ticket.prompt_tokens, now)
        if wait is None:
            card = side.card
            wait = side.ledger.seqs / (card.max_num_seqs if card and card.max_num_seqs else 1)
        return wait, side.ledger.seqs, side.routed.total()
