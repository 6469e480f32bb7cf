"""Where a prompt belongs, it goes: until it is crowded there, and again when it is so no more."""

from tests.admission.routing.test_sides import knows, rates, sides

from surgetank.admission.routing.affinity import Prefix, preference, prefix_key
from surgetank.admission.routing.choice import Choice
from surgetank.admission.routing.side import EngineSide, Why
from surgetank.admission.ticket import Ticket

BEGINNING = Prefix(prefix_key("You are a clerk."), 100)  # read in .01 s: what the cache saves


class Pool:
    """Equal engines, in the order in which the prompt prefers them."""

    def __init__(self, count: int) -> None:
        made = sides(count, now=-60.0)
        knows(made, *[rates(1.0)] * count)
        made.look(0.0)
        order = preference(BEGINNING.key, [side.name for side in made.all])
        self.order = [made.all[at] for at in order]
        self._choice = Choice(made)

    def pick(self, *unread: int, roomy: list[EngineSide] | None = None) -> tuple[int, Why]:
        """Its rank in that order, and why; each has so many prompt tokens to read."""
        for side, tokens in zip(self.order, unread, strict=True):
            side.backlog.tokens = tokens
        ticket = Ticket(id="", arrived=0.0, door="http", prompt_tokens=100, prefix=BEGINNING)
        side, why = self._choice.pick(ticket, roomy or self.order, 0.0)
        return self.order.index(side), why


def test_it_leaves_at_the_gain_and_comes_back_at_half_of_it() -> None:
    pool = Pool(2)
    assert pool.pick(90, 0) == (0, Why.AFFINITY)
    assert pool.pick(110, 0) == (1, Why.WAIT)
    assert pool.pick(80, 0) == (1, Why.WAIT)  # it was crowded
    assert pool.pick(40, 0) == (0, Why.AFFINITY)
    assert pool.pick(90, 0) == (0, Why.AFFINITY)  # and is not any more


def test_its_second_choice_is_a_home_too() -> None:
    assert Pool(3).pick(200, 50, 0) == (1, Why.AFFINITY)


def test_without_room_it_is_crowded_and_another_gets_the_prompt() -> None:
    pool = Pool(2)
    assert pool.pick(0, 90, roomy=[pool.order[1]]) == (1, Why.ONLY)
    assert pool.pick(80, 0) == (1, Why.WAIT)
