"""What the page is told once a second: every number that it shows, from one moment.

Times are seconds since the Unix epoch, durations seconds, rates per second over the last few
seconds, shares 0 to 1. None stands for what cannot be known.
"""

import msgspec

from surgetank.control.journal import Entry


class Verdict(msgspec.Struct, frozen=True):
    """What stands in the way, in one word; the numbers behind it; a command to go on with."""

    word: str
    evidence: tuple[str, ...]
    next: str


class Hold(msgspec.Struct, frozen=True):
    """Who drains the service. `expires_in` None: until it is ended."""

    who: str
    why: str
    expires_in: float | None


class Arrivals(msgspec.Struct, frozen=True):
    """Rates. `unread`: turned away before their body was known, so of no lane."""

    first: float
    retry: float
    unread: float


class Gate(msgspec.Struct, frozen=True):
    """Rates of its decisions; refusals by reason, the most frequent first."""

    admitted: float
    refused: float
    reasons: tuple[tuple[str, float], ...]


class Level(msgspec.Struct, frozen=True):
    """What waits in one class; one request of n choices counts n."""

    priority: str
    first: int
    retry: int
    tokens: int
    oldest: float | None


class Wait(msgspec.Struct, frozen=True):
    """How long an average request would wait, and which term that is most of."""

    seconds: float
    binding: str


class Waiting(msgspec.Struct, frozen=True):
    """The gate's queue. `bound`: requests that may wait by the threshold."""

    levels: tuple[Level, ...]
    requests: int
    tokens: int
    oldest: float | None
    wait: Wait | None
    threshold: float
    bound: float | None


class Steps(msgspec.Struct, frozen=True):
    """How long the engine's steps took of late; `target` is the TPOT target."""

    p50: float
    p99: float
    target: float


class Engine(msgspec.Struct, frozen=True):
    """The batch. `slots`: the share of slot-steps by what they were filled with, or empty for."""

    running: int
    most: int
    waiting: int  # in the engine itself
    slots: dict[str, float]
    held: str | None  # what keeps the next request out
    steps: Steps | None
    prefill: float  # tokens, a rate
    decode: float
    silent: float | None  # seconds without a step while there is work


class EngineLine(msgspec.Struct, frozen=True):
    """One engine of several. Of the requests that went there, so many then moved to another."""

    name: str
    maker: str
    role: str
    state: str
    since: float  # seconds in that state
    back_in: float | None  # of an ejected one, seconds
    running: int
    slots: int  # that it may have now
    wait: float | None
    kv: float | None  # share of its pool that it tells, or that was promised
    requests: int
    affine: int  # that went there for the beginning of their prompt
    moved: int
    ejections: int
    drain: Hold | None


class Kv(msgspec.Struct, frozen=True):
    """The KV pool, in blocks."""

    used: int
    cached: int
    free: int
    promised: int
    blocks: int


class Override(msgspec.Struct, frozen=True):
    """An operator's value that is in force."""

    who: str
    why: str
    expires_in: float


class LimitLine(msgspec.Struct, frozen=True):
    """One limit as it stands; `base` holds without an override."""

    name: str
    value: float
    base: float
    minimum: float
    maximum: float
    unit: str
    meaning: str
    usage: float | None
    override: Override | None


class Refused(msgspec.Struct, frozen=True):
    """One request that was not served, in the gate's own words."""

    at: float
    id: str
    priority: str
    lane: str
    outcome: str
    reason: str
    measured: float | None
    limit: float | None
    limit_name: str
    hint: float | None  # seconds to stay away; None: do not retry
    message: str


class Point(msgspec.Struct, frozen=True):
    """One second of the charts."""

    at: float
    arrivals: float
    retry: float
    good: float
    refused: float
    wait: float | None
    threshold: float
    oldest: float | None
    p50: float | None
    p99: float | None
    kv_used: float | None
    kv_cached: float | None


class Frame(msgspec.Struct, frozen=True):
    """Everything, now."""

    at: float
    number: int
    state: str  # ready, idle, draining, stalled or backend_down
    idle_for: float
    uptime: float
    version: str
    model: str | None
    device: str | None
    in_flight: int
    verdict: Verdict
    drain: Hold | None
    arrivals: Arrivals
    gate: Gate
    queue: Waiting
    engine: Engine | None
    engines: tuple[EngineLine, ...]
    kv: Kv | None
    outcomes: dict[str, float]  # rates, those of the last few seconds
    output_tokens: float
    limits: tuple[LimitLine, ...]
    journal: tuple[Entry, ...]  # newest first
    refusals: tuple[Refused, ...]  # newest first
    point: Point
