"""Bucket edges of every histogram, in seconds, and why each table is cut as it is."""

from bisect import insort
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buckets:
    """Upper edges in ascending order, without +Inf, and the reason behind them."""

    edges: tuple[float, ...]
    why: str

    def including(self, edge: float) -> tuple[float, ...]:
        """The edges with one more, so that a target's share is read off a bucket, not guessed."""
        edges = list(self.edges)
        if edge not in edges:
            insort(edges, edge)
        return tuple(edges)


DURATION = Buckets(
    (
        *(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5),
        *(10, 15, 20, 30, 45, 60, 120, 300, 600),
    ),
    "from a refusal at the door (milliseconds) to a long generation behind a full queue (minutes)",
)
TTFT = Buckets(
    (
        *(0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.4, 0.5, 0.75, 1, 1.5, 2.5),
        *(5, 7.5, 10, 20, 40, 80),
    ),
    "from a short prompt on an idle device to one that waited as long as a client would",
)
PER_TOKEN = Buckets(
    (
        *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15),
        *(0.2, 0.3, 0.5, 1, 2.5),
    ),
    "fine where people feel the pace (10 to 100 ms), up to a stall that they call a hang",
)
STEP = Buckets(
    (
        *(0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15),
        *(0.25, 0.5, 1, 2.5, 5),
    ),
    "from one small decode step to a step that was given far too much prefill",
)
WAIT = Buckets(
    (
        *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 3, 5, 10, 20, 30),
        *(60, 120, 300),
    ),
    "from no queue at all to the longest a deadline allows",
)
BACKOFF = Buckets(
    (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60),
    "advice is never under 50 ms, and past 10 s it is `do not retry`, save for a refill time",
)
SCRAPE = Buckets(
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5),
    "a scrape should take milliseconds; past 0.2 s it is a fault of ours, past 5 s it is lost",
)
