"""What the bench and its load process say to each other: one JSON object a line."""

import msgspec

from surgetank.control.bench.load.watch import Strain
from surgetank.control.bench.scenarios.plan import Call
from surgetank.control.bench.scenarios.rows import Row


class Setup(msgspec.Struct, frozen=True):
    """The first line to the load process; it answers with Ready."""

    openai_url: str
    grpc: str
    timeout: float  # seconds, of an HTTP attempt
    deadline: float  # seconds, of a gRPC call
    tokens_per_word: float
    seed: int


class Play(msgspec.Struct, frozen=True):
    """Make these calls. With a width, so many callers make them one after the other, for `seconds`,
    and their times do not count."""

    calls: list[Call]
    width: int = 0
    seconds: float = 0.0


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The clients are there."""


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A play began; `origin` on the monotonic clock, which processes of one machine share."""

    origin: float


class Played(msgspec.Struct, frozen=True, tag=True):
    """All calls have ended; rows[i] is of calls[i]. With a width there are only the rows of those
    that were begun in time."""

    rows: list[Row]
    strain: Strain


Answer = Ready | Begun | Played
