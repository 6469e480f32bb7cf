"""Time until a newcomer's turn, among classes and tenants that go on arriving.

Work that waits is not all: while a request waits, higher classes and other tenants keep coming and
overtake it. With drain rate mu, work Q ahead, and lambda the engine-seconds per second that
overtake, Q + lambda*t = mu*t at its turn (the busy period of a priority queue):

    t = Q / (mu - lambda)

Higher classes: all their work A, lambda_h as served lately; what they leave, mu - lambda_h, is
never less than the class's floor share. Its own class, where T tenants take turns, has two bounds.
By turns: what its own tenant has waiting, and of each other one as much as levels the counters, R
in all (fair.py). By work: all P that waits, while the other tenants go on at lambda_p, or at their
fair share if that is less. Hence

    left = max(floor*mu, mu - lambda_h)
    t = min((A + R) / left, (A + P) / max(left/T, left - lambda_p))

So a hog's queue is nobody else's wait, and a low class is told how long the high ones keep it.
"""

import msgspec


class Work(msgspec.Struct):
    """What some of the waiting tickets amount to."""

    seconds: float = 0.0  # engine-seconds
    tokens: int = 0  # prompt tokens


class Line(msgspec.Struct, frozen=True):
    """What a newcomer finds ahead of it; rates in engine-seconds per second."""

    above: Work  # A: of the classes above
    above_rate: float  # lambda_h
    peers: Work  # P: of its own class
    peers_rate: float  # lambda_p
    tenants: int  # T, its own included
    turns: float  # R, engine-seconds

    @property
    def empty(self) -> bool:
        """Nothing waits ahead."""
        return not (self.above.tokens or self.peers.tokens)

    def seconds(self, drain: float, floor: float, running: float) -> float:
        """t; `running` is the work whose end frees the first slot."""
        left = self._left(drain, floor)
        alone = max(left / self.tenants, left - self.peers_rate)
        first = self.above.seconds + running
        return min((first + self.turns) / left, (first + self.peers.seconds) / alone)

    def tokens(self, drain: float, floor: float) -> float:
        """Prompt tokens that will be read before its own, stretched by those that overtake."""
        peers = float(self.peers.tokens)
        if self.turns < self.peers.seconds:
            peers *= self.turns / self.peers.seconds
        return (self.above.tokens + peers) * drain / self._left(drain, floor)

    def _left(self, drain: float, floor: float) -> float:
        return max(floor * drain, drain - self.above_rate)
