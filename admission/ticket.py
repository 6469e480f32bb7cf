"""A request's identity and life in the sidecar, from its headers to its one outcome."""

from dataclasses import dataclass, field

import msgspec

from surgetank.admission.cost import UNKNOWN, Estimate
from surgetank.admission.leases.quotas import Denied, Taken
from surgetank.admission.outcome import Refusal
from surgetank.admission.routing.affinity import Prefix
from surgetank.admission.wait import Wait
from surgetank.engine.backends.remote.api import Usage
from surgetank.telemetry.tracecontext import SpanId, TraceContext
from surgetank.telemetry.vocabulary import Lane, Outcome, Priority, Reason

MAX_EVENTS = 64  # of those that may repeat
MOVED = "moved from"  # how the event begins of a request that another engine gets


class Found(msgspec.Struct, frozen=True):
    """The desk as a request found it when it came to the gate."""

    queued: int  # requests of all classes; n choices count n
    tokens: int  # their prompt tokens
    ahead: int  # of the queued, those of its own class and above
    running: int  # sequences in the engine
    kv: float  # share of the pool that was promised
    threshold: float  # seconds that it might wait


@dataclass(eq=False, slots=True)
class Ticket:
    """What the gate knows of a request. The desk alone changes it after the door filled it in.

    Times are seconds on the injected monotonic clock. A ticket ends exactly once.
    """

    id: str  # client's x-request-id or ours; for logs and traces, never a metric label
    arrived: float
    door: str  # http or grpc
    route: str = ""  # the path, or the method's full name; "" until the door knows it
    trace: TraceContext | None = None  # None: its client sent none, and we begin none
    earlier: SpanId | None = None  # of the failed attempt that it repeats
    lane: Lane = Lane.FIRST
    attempt: int = 0  # 0 = first try
    detected_by: str = "none"  # the header that states the attempt, or fingerprint
    priority: Priority = Priority.DEFAULT
    lowest: Priority = Priority.SHEDDABLE  # that the tenant's requests may have
    tenant: str = ""
    barred: Refusal | None = None  # it is nobody's who may ask: it goes no further
    deadline: float | None = None  # the whole answer is wanted by then
    patience: float | None = None  # seconds the client sits through before its first byte
    model: str = ""  # as the catalogue labels it; "" until the body was read
    prompt_tokens: int = 0  # what the gate reckons with, to the end
    estimated: bool = False  # that number, by the prompt's characters
    max_tokens: int = 0
    n: int = 1
    stream: bool = False
    hits: int = 1  # what it counts at quotas; 0: it only asks
    prefix: Prefix | None = None  # what it begins with; None: it may go anywhere
    # what the gate made of it
    estimate: Estimate = UNKNOWN
    fingerprint: bytes = b""  # b"" until the body was read
    promised: bool = False  # a retry that comes at the slot it was given
    forecast: tuple[float, float] | None = None  # predicted wait; seconds stalled until then
    found: Found | None = None  # None: it ended before it came to the gate
    wait: Wait | None = None  # as predicted when it was admitted
    denied: Denied | None = None  # the shared limit that it met
    taken: Taken | None = None  # what it holds of shared limits, until its end
    # life
    queued_at: float | None = None
    dispatched_at: float | None = None  # the last time, if it moved
    engine: str = ""  # the name of the one that it went to last; "": to none yet
    turned_away: tuple[str, ...] = ()  # the engines that it was moved away from, in order
    moved_at: float | None = None  # the last time
    deaths: int = 0  # engines that were lost while they worked on it, or on an earlier attempt
    first_token_at: float | None = None
    heard: bool = False  # its prompt counts as read
    last_token_at: float | None = None
    ended_at: float | None = None
    told: Usage | None = None  # by an engine whose tokens are not ours to count
    cached_tokens: int = 0
    output_tokens: int = 0
    tpot: float | None = None  # seconds per output token after the first, of an ok request
    longest_gap: float = 0.0  # seconds between two of a choice's tokens
    outcome: Outcome | None = None
    reason: Reason = Reason.NONE
    events: list[tuple[float, str]] = field(default_factory=list)  # for explain and tracing

    def lower(self, priority: Priority) -> None:
        """Its body asks for a class: it may be lower than it has, never higher."""
        self.priority = min(self.lowest, max(self.priority, priority))

    @property
    def cost_tokens(self) -> int:
        """Tokens this request may occupy: prompt once, output for each choice."""
        return self.prompt_tokens + self.n * self.max_tokens

    @property
    def input_tokens(self) -> int:
        """Of its prompt, by the best that is known."""
        told = None if self.told is None else self.told.prompt_tokens
        return self.prompt_tokens if told is None else told

    @property
    def unused_tokens(self) -> float:
        """Of those, what it did not use: an engine that never saw it read nothing."""
        used = 0 if self.dispatched_at is None else self.prompt_tokens + self.output_tokens
        return float(max(0, self.cost_tokens - used))

    @property
    def waits_since(self) -> float | None:
        """When it came to the queue, the last time; None: it never did."""
        return self.queued_at if self.moved_at is None else self.moved_at

    @property
    def due(self) -> float | None:
        """When the client gives up: its deadline, or its read timeout while it has heard nothing.

        A read timeout ends a plain answer, but of a stream only the wait for the first token.
        """
        if self.patience is None or (self.stream and self.first_token_at is not None):
            return self.deadline
        silent_until = self.arrived + self.patience
        return silent_until if self.deadline is None else min(silent_until, self.deadline)

    @property
    def log_fields(self) -> dict[str, str]:
        """What a log line about it says, as `extra`."""
        if self.trace is None:
            return {"request_id": self.id}
        return {
            "request_id": self.id,
            "trace_id": self.trace.id.trace,
            "span_id": self.trace.id.span,
        }

    @property
    def failed(self) -> bool:
        """It has ended, and not well."""
        return self.outcome not in (None, Outcome.OK)

    def happened(self, now: float, what: str) -> None:
        """Something that may happen again and again: remembered as long as that is bounded."""
        if len(self.events) < MAX_EVENTS:
            self.events.append((now, what))

    def time_left(self, now: float) -> float | None:
        """Seconds until the client gives up; None when it waits for ever."""
        due = self.due
        return None if due is None else due - now
