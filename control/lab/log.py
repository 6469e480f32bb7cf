"""What happened in a run: one row per call and one per attempt, in columns of plain numbers."""

from array import array
from dataclasses import dataclass, field

from surgetank.telemetry.vocabulary import Outcome, Reason

OUTCOMES = list(Outcome)
REASONS = list(Reason)
ABANDONED = -1  # the client itself gave an attempt up
NAN = float("nan")


def _floats() -> "array[float]":
    return array("d")


def _ints() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class Calls:
    """One row for each call: what its user wanted, however many attempts that took."""

    number: "array[int]" = field(default_factory=_ints)
    arrived: "array[float]" = field(default_factory=_floats)
    heard: "array[float]" = field(default_factory=_floats)  # its first token; nan: not served
    ended: "array[float]" = field(default_factory=_floats)  # nan: it had not by the run's end
    prompt: "array[int]" = field(default_factory=_ints)
    output: "array[int]" = field(default_factory=_ints)
    tenant: "array[int]" = field(default_factory=_ints)
    priority: "array[int]" = field(default_factory=_ints)
    ok: "array[int]" = field(default_factory=_ints)
    ttft: "array[float]" = field(default_factory=_floats)  # of the attempt that was served
    tpot: "array[float]" = field(default_factory=_floats)  # nan: one token, or not served
    attempts: "array[int]" = field(default_factory=_ints)
    admitted: "array[int]" = field(default_factory=_ints)  # attempts that got past the door


@dataclass(slots=True)
class Attempts:
    """One row for each attempt, when it ended."""

    call: "array[int]" = field(default_factory=_ints)
    number: "array[int]" = field(default_factory=_ints)  # 0 is the first
    at: "array[float]" = field(default_factory=_floats)
    ended: "array[float]" = field(default_factory=_floats)
    admitted: "array[int]" = field(default_factory=_ints)
    outcome: "array[int]" = field(default_factory=_ints)  # index of OUTCOMES, or ABANDONED
    reason: "array[int]" = field(default_factory=_ints)  # index of REASONS
    advised: "array[float]" = field(default_factory=_floats)  # seconds; nan: do not retry
    taken: "array[float]" = field(default_factory=_floats)  # until the next attempt; nan: none
    tokens: "array[int]" = field(default_factory=_ints)  # output tokens that the client got
    ttft: "array[float]" = field(default_factory=_floats)
    tpot: "array[float]" = field(default_factory=_floats)


@dataclass(slots=True)
class Log:
    """A run's rows, and the names behind its tenant numbers."""

    calls: Calls = field(default_factory=Calls)
    attempts: Attempts = field(default_factory=Attempts)
    tenants: list[str] = field(default_factory=list)

    def tenant(self, name: str) -> int:
        """The number of a tenant; a new one gets the next."""
        if name not in self.tenants:
            self.tenants.append(name)
        return self.tenants.index(name)
