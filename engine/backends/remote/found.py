"""What was found at an engine's address, and what it tells of itself when it is looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from surgetank.engine.api import ModelCard

EMBEDDED = "embedded"
UNKNOWN = "unknown"


class NotFound(Exception):
    """Nobody answers at the address, or nobody that we know how to ask."""


class NobodyListens(NotFound):
    """Connections to the address are refused: whoever was there takes no more."""


class Source(StrEnum):
    """How we know how many requests an engine runs at once."""

    TOLD = "told"
    CONFIGURED = "configured"
    GUESSED = "guessed"


@dataclass(frozen=True, slots=True)
class Found:
    """An engine: who made it, what it serves, which of its signals can be had."""

    kind: str  # a name out of kinds.KINDS
    version: str  # "" when it does not say
    card: ModelCard  # sizes 0 where they are not known
    models: tuple[str, ...]  # every name that it answers to, the card's first
    signals: tuple[str, ...] = ()  # names of the fields of Signals that it told at first
    notes: tuple[str, ...] = ()  # what the operator should know of it
    metrics: str = ""  # the page that has its metrics; "": it has none
    slots: Source = Source.TOLD
    ignores: tuple[str, ...] = ()  # fields of a chat's body that it passes over

    def describe(self) -> str:
        """In one line."""
        version = f" {self.version}" if self.version else ""
        told = ", ".join(self.signals) or "nothing"
        return f"{self.kind}{version}, model {self.card.name}; it tells {told}"


@dataclass(frozen=True, slots=True)
class Signals:
    """One look at an engine's own metrics. None: it does not tell, which is neither 0 nor full."""

    at: float | None = None  # monotonic seconds of the look; None: there was none
    running: float | None = None  # requests in its batch
    waiting: float | None = None  # requests in its own queue
    kv_used: float | None = None  # share of its KV pool
    prompt_tokens: float | None = None  # read since it began
    output_tokens: float | None = None  # produced since it began
    preemptions: float | None = None  # since it began

    @property
    def in_it(self) -> float | None:
        """Requests that it has, those in its queue as well where it tells of them."""
        return None if self.running is None else self.running + (self.waiting or 0.0)


@dataclass(frozen=True, slots=True)
class Look:
    """All that one look brought: its signals, and what shows whether it is still the same one."""

    signals: Signals
    models: tuple[str, ...] | None = None  # every name that it answers to; None: not told
    began: float | None = None  # when its process did, Unix seconds; None: not told
    uptime: float | None = None  # seconds; None: not told


SIGNALS = tuple(each.name for each in fields(Signals) if each.name != "at")


@dataclass(frozen=True, slots=True)
class Vitals:
    """An engine as it tells of itself beside its steps; of the embedded one all is in its steps."""

    kind: str = EMBEDDED
    url: str = ""
    found: Found | None = None  # None while it is not there
    signals: Signals = field(default_factory=Signals)  # the newest look; of a lost one its last
    drift: int | None = None  # sequences of ours that its last count misses; below 0: others' in it
    pushbacks: int = 0  # requests that it turned away, since the start
    patience: float | None = None  # seconds of silence among plain answers; None: none was seen
    requests: int | None = None  # that we have in it now; None: nobody counts them

    @property
    def foreign(self) -> bool:
        """Another maker's, behind an address."""
        return self.kind != EMBEDDED

    def age(self, now: float) -> float | None:
        """Seconds since its metrics were last read; None: never, so that nothing is stale."""
        return None if self.signals.at is None else max(0.0, now - self.signals.at)

    def available(self) -> Mapping[str, bool]:
        """Which signals it offers now."""
        there = self.found is not None
        return {name: there and getattr(self.signals, name) is not None for name in SIGNALS}
